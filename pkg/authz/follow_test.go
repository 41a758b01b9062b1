package authz

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"

	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// TestFollowed looks at a file whose kubeconfig comes late.
func TestFollowed(t *testing.T) {
	configmetrics.RegisterMetrics()
	dir := t.TempDir()
	file, kubeconfig := filepath.Join(dir, "authorization.yaml"), filepath.Join(dir, "kubeconfig")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	rbac := header + "- {type: RBAC, name: roles}\n"
	webhook := header + `- type: Webhook
  name: policy
  webhook:
    timeout: 1s
    subjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` + kubeconfig + "}\n- {type: RBAC, name: roles}\n"
	f := &followed{file: file, dialer: newDialer(nil), roles: &roles{}}
	asked := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}}
	if d, reason, err := f.Authorize(t.Context(), asked); d != Deny || reason != "authorization is being set up" || err != nil {
		t.Errorf("before the file is read: %v, %q, %v", d, reason, err)
	}
	write(file, rbac)
	inForce, source := "", f.source(nil)
	use := source.Use
	source.Use = func(ctx context.Context, content []byte) error {
		err := use(ctx, content)
		if err == nil {
			inForce = string(content)
		}
		return err
	}
	followed := &follow.File{Source: source}
	if err := followed.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, _, err := f.Authorize(t.Context(), asked); d != NoOpinion || err != nil {
		t.Errorf("nobody is bound: %v, %v", d, err)
	}
	begun := time.Unix(1000, 0)
	steps := []struct {
		reason string
		before func()
		after  time.Duration
		used   string
	}{
		{"what did not change", func() {}, 0, rbac},
		{"a kubeconfig that is not there", func() { write(file, webhook) }, 0, rbac},
		{"is not tried every time", func() {
			write(kubeconfig, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], `+
				`clusters: [{name: a, cluster: {server: "https://127.0.0.1:1/review"}}]}`)
		}, time.Second, rbac},
		{"but again after a while", func() {}, follow.Retry, webhook},
		{"without RBAC", func() { write(file, header) }, follow.Retry, webhook},
		{"a file that is gone", func() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, follow.Retry, webhook},
		{"and back", func() { write(file, rbac) }, follow.Retry, rbac},
	}
	for _, s := range steps {
		s.before()
		followed.Look(t.Context(), begun.Add(s.after))
		if inForce != s.used {
			t.Errorf("%s: in force is\n%s", s.reason, inForce)
		}
	}
}
