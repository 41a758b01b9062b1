package streams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// consoles are apples with a console that repeats what it is told.
func consoles() *apis.Group {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Exec("console", func(_ context.Context, _ *fruit.Apple, o *corev1.PodExecOptions, s apis.Streams) error {
			if len(o.Command) > 0 {
				_, err := fmt.Fprintln(s.Stdout, o.Command)
				return err
			}
			_, err := io.Copy(s.Stdout, s.Stdin)
			return err
		}),
		apis.Do("shake", shake)))
}

// orchard starts a plane with an apple, "gala", and returns how to reach it over a socket.
func orchard(t *testing.T, parts ...controlplane.Part) (*planetest.Plane, *rest.Config) {
	t.Helper()
	p := planetest.Options{Kubeconfig: true}.Start(t, append(parts, consoles())...)
	p.Apply(t, planetest.YAML("{apiVersion: fruit.example.com/v1, kind: Apple, metadata: {name: gala}}"))
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	must(t, err)
	return p, config
}

// executor opens the console of the apple, over "WebSocket" or "SPDY".
func executor(t *testing.T, config *rest.Config, transport, query string) remotecommand.Executor {
	t.Helper()
	at := config.Host + "/apis/fruit.example.com/v1/namespaces/default/apples/gala/console?" + query
	var e remotecommand.Executor
	u, err := url.Parse(at)
	must(t, err)
	if transport == "WebSocket" {
		e, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, at)
	} else {
		e, err = remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	}
	must(t, err)
	return e
}

// console is one that is open.
type console struct {
	in    io.Writer
	out   *bufio.Reader
	ended chan error
}

// open opens a console until the test ends.
func open(t *testing.T, config *rest.Config, transport string) *console {
	t.Helper()
	e := executor(t, config, transport, "stdin=1&stdout=1")
	in, told := io.Pipe()
	shown, out := io.Pipe()
	c := &console{in: told, out: bufio.NewReader(shown), ended: make(chan error, 1)}
	t.Cleanup(func() { _ = told.Close() })
	go func() {
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: out})
		_ = in.Close() // nobody reads any more
		_ = out.CloseWithError(fmt.Errorf("the console ended: %w", errors.Join(err, io.EOF)))
		c.ended <- err
	}()
	c.repeats(t)
	return c
}

// repeats says something, and waits for it.
func (c *console) repeats(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(c.in, "hello\n")
	must(t, err)
	if line, err := c.out.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("the console says %q: %v", line, err)
	}
}

// as is a configuration of a user who has the verbs on consoles, by a role of the user's name.
func as(t *testing.T, p *planetest.Plane, config *rest.Config, user string, verbs ...string) *rest.Config {
	t.Helper()
	meta := metav1.ObjectMeta{Name: user}
	rbac := p.Client().RbacV1()
	_, err := rbac.Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules(verbs...)}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	must(t, err)
	p.Eventually(t, func(ctx context.Context) error {
		for _, verb := range verbs {
			r, err := p.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: "default", Verb: verb, Group: fruit.GroupVersion().Group, Resource: "apples", Subresource: "console",
				}},
			}, metav1.CreateOptions{})
			if err != nil || !r.Status.Allowed {
				return fmt.Errorf("%s may not yet %s: %w", user, verb, err)
			}
		}
		return nil
	})
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = user
	return config
}

func rules(verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{fruit.GroupVersion().Group}, Resources: []string{"apples/console"}, Verbs: verbs}}
}

// TestConsoleEndsWithItsRights: a console ends when what allowed it goes, and no other one does.
func TestConsoleEndsWithItsRights(t *testing.T) {
	t.Parallel()
	p, config := orchard(t)
	for name, c := range map[string]struct {
		transport string
		verbs     []string
		left      []string // of the verbs; nil: the binding goes
	}{
		"websocket-binding": {transport: "WebSocket", verbs: []string{"get", "create"}},
		"websocket-create":  {transport: "WebSocket", verbs: []string{"get", "create"}, left: []string{"get"}},
		"websocket-get":     {transport: "WebSocket", verbs: []string{"get", "create"}, left: []string{"create"}},
		"spdy-binding":      {transport: "SPDY", verbs: []string{"create"}},
		"spdy-create":       {transport: "SPDY", verbs: []string{"get", "create"}, left: []string{"get"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := open(t, as(t, p, config, name, c.verbs...), c.transport)
			lasts := open(t, as(t, p, config, name+"-lasts", c.verbs...), c.transport)
			rbac := p.Client().RbacV1()
			if c.left == nil {
				must(t, rbac.RoleBindings("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
			} else {
				_, err := rbac.Roles("default").Update(t.Context(),
					&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(c.left...)}, metav1.UpdateOptions{})
				must(t, err)
			}
			select {
			case err := <-ends.ended:
				t.Logf("the console ended: %v", err)
			case <-time.After(patience):
				t.Error("the console does not end")
			}
			lasts.repeats(t)
		})
	}
}
