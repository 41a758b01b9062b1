package aggregator_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// published is what other servers are told.
func published(t *testing.T, config *rest.Config) map[string]string {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Data
}

// TestIdentity: a server behind believes what this one says of who asks, by a certificate of
// the authority that is published, and goes on when that changes.
func TestIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	callers := make(chan string, 1)
	frontParts := aggregator.APIServices{Dir: dir}
	front, _ := run(t, memory.Store{}, frontParts)
	told := published(t, front)
	for name, want := range map[string]string{
		"requestheader-allowed-names": `["sailplane-front-proxy"]`, "requestheader-username-headers": `["X-Remote-User"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		"requestheader-uid-headers": `["X-Remote-Uid"]`,
	} {
		if told[name] != want {
			t.Errorf("%s is %s, want %s", name, told[name], want)
		}
	}
	proxies := t.TempDir() + "/proxies.crt"
	write(t, proxies, told["requestheader-client-ca-file"])

	behind, err := controlplane.New("behind").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Proxy{ClientCAFile: proxies, AllowedNames: []string{"sailplane-front-proxy"}},
		authn.Admin{Dir: t.TempDir()},
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples")),
		admit.ValidateObject("who", func(_ context.Context, _, _ *fruit.Apple, a admit.Attributes) error {
			select {
			case callers <- fmt.Sprintf("%s of %v", a.GetUserInfo().GetName(), a.GetUserInfo().GetGroups()):
			default: // the first is looked at
			}
			return nil
		}),
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	started(t, behind)
	service := remoteService(behind.Authority().CurrentCABundleContent())
	service.Name, service.Spec.Group, service.Spec.Version = nameOfApples(), fruit.GroupVersion().Group, fruit.GroupVersion().Version
	service.Annotations = map[string]string{aggregator.URLAnnotation: "https://" + behind.Address().String()}
	if _, err := services(t, front).ApiregistrationV1().APIServices().Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asGardener := rest.CopyConfig(front)
	asGardener.Impersonate = rest.ImpersonationConfig{UserName: "gardener", Groups: []string{"system:masters"}}
	grow := func(name string) error {
		_, err := appleClient(t, asGardener).Create(t.Context(), apple(name), metav1.CreateOptions{})
		return err
	}
	eventually(t, "a create", func() error { return grow("a") })
	if got, want := <-callers, "gardener of [system:masters system:authenticated]"; got != want {
		t.Errorf("the server behind was asked by %s, want %s", got, want)
	}

	// A new authority: the old one and the new one are trusted while it changes.
	next := pki.Dir(t.TempDir())
	made, err := next.Load(t.Context(), pki.Request{User: "sailplane-front-proxy"})
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	write(t, proxies, string(made.CA)+string(old))
	pair, err := tls.X509KeyPair(made.AdminCert, made.AdminKey)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server behind knows both", func() error {
		way := &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, //nolint:gosec // it is asked only whom it knows
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+behind.Address().String()+"/apis", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Remote-User", "ann")
		r.Header.Set("X-Remote-Group", "system:masters")
		answer, err := way.RoundTrip(r)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
	for _, file := range []string{"ca.crt", "ca.key"} {
		content, err := os.ReadFile(string(next) + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/"+file, string(content))
	}
	n := 0
	eventually(t, "the new authority is published", func() error {
		n++
		if err := grow(fmt.Sprintf("during-%d", n)); err != nil {
			t.Errorf("a request was lost: %v", err)
		}
		if !strings.HasPrefix(published(t, front)["requestheader-client-ca-file"], string(made.CA)) {
			return errors.New("it is the old one")
		}
		return nil
	})
	write(t, proxies, string(made.CA))
	eventually(t, "the old authority is not needed", func() error { return grow("z") })
}
