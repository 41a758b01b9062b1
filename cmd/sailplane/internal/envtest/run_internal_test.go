package envtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
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
	cert, key, err := s.servingPair(&config.Server{})
	if err != nil {
		t.Fatal(err)
	}
	made := content(t, cert)
	if again, _, err := s.servingPair(&config.Server{}); err != nil || content(t, again) != made {
		t.Errorf("the second start has another certificate (%v)", err)
	}
	given := &config.Server{Serving: config.Serving{CertFile: "a", KeyFile: "b"}}
	if cert, key, err := s.servingPair(given); cert != "a" || key != "b" || err != nil {
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

func TestAuthorized(t *testing.T) {
	health := []string{"/livez", "/readyz", "/healthz", "/version"}
	for name, tc := range map[string]struct {
		reason string
		modes  []string
		file   string
		closed bool
		want   []string // modes
		paths  []string
		log    string
	}{
		"Open":   {reason: "everything is allowed, but not to strangers", modes: []string{"AlwaysAllow"}, want: []string{"AlwaysAllow"}, paths: health},
		"RBAC":   {reason: "roles decide about strangers, too", modes: []string{"RBAC"}, want: []string{"RBAC"}, paths: []string{"*"}},
		"Closed": {reason: "nobody comes without credentials", modes: []string{"RBAC"}, closed: true, want: []string{"RBAC"}},
		"Node": {
			reason: "there are no nodes", modes: []string{"Node", "RBAC"}, want: []string{"RBAC"}, paths: []string{"*"},
			log: "warning: --authorization-mode Node",
		},
		"File": {reason: "the file says it all", modes: []string{"AlwaysAllow"}, file: "f", want: []string{"AlwaysAllow"}, paths: []string{"*"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &config.Server{}
			c.Authorization.Modes, c.Authorization.ConfigFile, c.Authentication.AnonymousPaths = tc.modes, tc.file, health
			var log bytes.Buffer
			(&apiServer{anonymous: !tc.closed}).authorized(c, &log)
			if !slices.Equal(c.Authorization.Modes, tc.want) || !slices.Equal(c.Authentication.AnonymousPaths, tc.paths) ||
				!strings.HasPrefix(log.String(), tc.log) {
				t.Errorf("%s: %+v %v %q", tc.reason, c.Authorization, c.Authentication.AnonymousPaths, &log)
			}
		})
	}
}

// TestAdmitted: plugins that are off in kube-apiserver are off unless they are enabled,
// and those that do not exist are left out with a warning.
func TestAdmitted(t *testing.T) {
	const optional = "OwnerReferencesPermissionEnforcement"
	for name, tc := range map[string]struct {
		reason                  string
		enable, disable         []string
		wantEnable, wantDisable []string
		log                     string
	}{
		"None":    {reason: "the defaults", wantDisable: []string{optional}},
		"Enabled": {reason: "one more", enable: []string{optional}, wantEnable: []string{optional}, wantDisable: []string{optional}},
		"Off":     {reason: "as envtest has it", disable: []string{"ServiceAccount", "ResourceQuota"}, wantDisable: []string{"ResourceQuota", optional}},
		"Unknown": {reason: "it is not here", enable: []string{"PodSecurity"}, wantDisable: []string{optional}, log: "warning: --enable-admission-plugins PodSecurity"},
		"Always":  {reason: "it is part of namespaces", disable: []string{"NamespaceLifecycle"}, wantDisable: []string{optional}, log: "warning: --disable-admission-plugins NamespaceLifecycle"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &config.Server{}
			c.Admission.Enable, c.Admission.Disable = tc.enable, tc.disable
			var log bytes.Buffer
			(&apiServer{}).admitted(c, &log)
			if !slices.Equal(c.Admission.Enable, tc.wantEnable) || !slices.Equal(c.Admission.Disable, tc.wantDisable) ||
				!strings.HasPrefix(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
				t.Errorf("%s: %+v %q", tc.reason, c.Admission, &log)
			}
		})
	}
}
