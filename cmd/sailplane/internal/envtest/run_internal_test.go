package envtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestBounded(t *testing.T) {
	boom := errors.New("boom")
	if err := bounded(t.Context(), func(context.Context) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a server that fails: %v, want its error", err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := bounded(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
			t.Errorf("a server that stops: %v", err)
		}
		end := make(chan struct{})
		defer close(end)
		if err := bounded(ctx, func(context.Context) error { <-end; return nil }); err == nil || !strings.Contains(err.Error(), "did not stop") {
			t.Errorf("a server that does not stop: %v, want an error", err)
		}
	})
}

func TestFinalizes(t *testing.T) {
	info := request.RequestInfo{Verb: "update", Resource: "namespaces", Subresource: "finalize"}
	other := info
	other.Subresource = "status"
	for name, tc := range map[string]struct {
		reason, user string
		info         request.RequestInfo
		want         bool
	}{
		"User":       {"a suite does it", "admin", info, true},
		"Controller": {"ours has to know what came of it", user.APIServerUser, info, false},
		"Other":      {"another sub-resource", "admin", other, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := request.WithRequestInfo(request.WithUser(t.Context(), &user.DefaultInfo{Name: tc.user}), &tc.info)
			r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/", nil)
			if got := finalizes(r); got != tc.want {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestServingPair makes a certificate where there is none, as kube-apiserver does.
func TestServingPair(t *testing.T) {
	s := &apiServer{certDir: t.TempDir()}
	cert, key, err := s.servingPair()
	if err != nil {
		t.Fatal(err)
	}
	made := content(t, cert)
	if again, _, err := s.servingPair(); err != nil || content(t, again) != made {
		t.Errorf("the second start has another certificate (%v)", err)
	}
	given := &apiServer{certDir: s.certDir, cert: "a", key: "b"}
	if cert, key, err := given.servingPair(); cert != "a" || key != "b" || err != nil {
		t.Errorf("the flags say a and b, it is %s and %s (%v)", cert, key, err)
	}
	private := files{dir: t.TempDir()}
	// Certificates verify tokens too, by their keys: that of the server and of its authority here.
	file, err := private.accountKeys(key, []string{cert})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(content(t, file), "-----BEGIN"); got != 3 {
		t.Errorf("the file has %d keys, want the one that signs and the two that verify", got)
	}
	if _, err := private.accountKeys(filepath.Join(private.dir, "absent"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key that is not there: %v", err)
	}
}

func TestAuthorizers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		server apiServer
		parts  int
		open   bool
		log    string
		fails  string
	}{
		"None":    {reason: "kube-apiserver allows everything then", parts: 1, open: true},
		"RBAC":    {reason: "as envtest has it", server: apiServer{modes: []string{"RBAC"}}, parts: 1},
		"Node":    {reason: "there are no nodes", server: apiServer{modes: []string{"Node", "RBAC"}}, parts: 1, log: "warning: --authorization-mode Node"},
		"Webhook": {reason: "it needs a file", server: apiServer{modes: []string{"Webhook"}}, fails: "--authorization-webhook-config-file"},
		"File":    {reason: "the file says it all", server: apiServer{modes: []string{"RBAC"}, authzConfig: "f"}, parts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			parts, err := tc.server.authorizers(files{dir: t.TempDir()}, &log)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%s: %v, want an error with %q", tc.reason, err, tc.fails)
				}
				return
			}
			if err != nil || len(parts) != tc.parts || tc.server.isOpen() != tc.open || !strings.HasPrefix(log.String(), tc.log) {
				t.Errorf("%s: %d parts, open %v, %q (%v)", tc.reason, len(parts), tc.server.isOpen(), &log, err)
			}
		})
	}
}
