package kept_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// checkObjects compares every object with the listing.
func (s *subject) checkObjects(t *testing.T) {
	t.Helper()
	found, revision, err := kept.Take(t.Context(), s.config)
	if err != nil {
		t.Fatal(err)
	}
	report(t, "", kept.Differences(s.listing.Objects, found))
	if revision < s.listing.Revision {
		t.Errorf("the revision went back from %d to %d", s.listing.Revision, revision)
	}
}

// checkAccess logs in with what earlier versions gave away.
func (s *subject) checkAccess(t *testing.T, admin *rest.Config) {
	t.Helper()
	if sum, err := kept.Sum(filepath.Join(s.dir, "pki", "ca.crt")); err != nil || sum != s.listing.CA {
		t.Errorf("the certificate authority is another one: %v", err)
	}
	admin.Host = s.config.Host // the port is another one
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(pair.Leaf.NotAfter) {
		if got := whoAmI(t, admin); got != "sailplane-admin" {
			t.Errorf("the old kubeconfig is that of %q", got)
		}
	} else {
		t.Logf("the certificate in the old kubeconfig ended at %v: nobody can log in with it", pair.Leaf.NotAfter)
	}
	builder := rest.AnonymousClientConfig(admin)
	builder.BearerToken = s.listing.Token
	if got := whoAmI(t, builder); got != s.listing.TokenUser {
		t.Errorf("the old token is that of %q, want %q", got, s.listing.TokenUser)
	}
	client, err := dynamic.NewForConfig(builder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(kept.ConfigMaps()).Namespace(kept.Namespace).Get(t.Context(), "updated", metav1.GetOptions{}); err != nil {
		t.Errorf("what a role allows the service account: %v", err)
	}
	if _, err := client.Resource(kept.ConfigMaps()).Namespace("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what no role allows the service account: %v, want forbidden", err)
	}
}

// whoAmI is how the server calls the client.
func whoAmI(t *testing.T, config *rest.Config) string {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review := &unstructured.Unstructured{}
	review.SetAPIVersion("authentication.k8s.io/v1")
	review.SetKind("SelfSubjectReview")
	gvr := schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}
	answer, err := client.Resource(gvr).Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("who am I: %v", err)
		return ""
	}
	name, _, _ := unstructured.NestedString(answer.Object, "status", "userInfo", "username")
	return name
}

// checkPast reads what was there at earlier revisions. A version may have
// dropped that, and says so.
func (s *subject) checkPast(t *testing.T) {
	t.Helper()
	for _, past := range s.listing.Past {
		found, _, err := kept.List(t.Context(), s.configMaps(), kept.ConfigMaps(), metav1.ListOptions{
			ResourceVersion: strconv.FormatInt(past.Revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		switch {
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			t.Logf("revision %d is gone", past.Revision)
		case err != nil:
			t.Errorf("list at revision %d: %v", past.Revision, err)
		default:
			t.Logf("revision %d is known", past.Revision)
			if diff := cmp.Diff(past.Objects, found, cmpopts.IgnoreUnexported(kept.Object{})); diff != "" {
				t.Errorf("list at revision %d (-want +got):\n%s", past.Revision, diff)
			}
		}
	}
}

// checkWatch watches from an earlier revision: what followed comes, or 410 Gone.
func (s *subject) checkWatch(t *testing.T) {
	t.Helper()
	want := s.listing.Watch
	got, gone := s.follow(t, want.From).events(t, len(want.Events))
	if gone {
		t.Logf("what followed revision %d is gone", want.From)
		return
	}
	if diff := cmp.Diff(want.Events, got, cmpopts.IgnoreUnexported(kept.Object{})); diff != "" {
		t.Errorf("watch from revision %d (-want +got):\n%s", want.From, diff)
	}
}

// follower is a watch of the ConfigMaps, or the error that refused it.
type follower struct {
	watch watch.Interface
	err   error
}

// follow watches the ConfigMaps from a revision.
func (s *subject) follow(t *testing.T, revision int64) *follower {
	t.Helper()
	w, err := s.configMaps().Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(revision, 10)})
	if err == nil {
		t.Cleanup(w.Stop)
	}
	return &follower{watch: w, err: err}
}

// events are the next events, or the word of the server that they are gone.
func (f *follower) events(t *testing.T, count int) (all []kept.Event, gone bool) {
	t.Helper()
	if f.err != nil {
		if apierrors.IsResourceExpired(f.err) || apierrors.IsGone(f.err) {
			return nil, true
		}
		t.Fatal(f.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), kept.Limit)
	defer cancel()
	for len(all) < count {
		select {
		case <-ctx.Done():
			t.Fatalf("a watch delivered %d events of %d: %v", len(all), count, all)
		case e, open := <-f.watch.ResultChan():
			if !open {
				t.Fatalf("a watch ended after %d events of %d: %v", len(all), count, all)
			}
			if err := apierrors.FromObject(e.Object); e.Type == watch.Error {
				if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
					return nil, true
				}
				t.Fatal(err)
			}
			o, err := kept.Of(kept.ConfigMaps(), e.Object.(*unstructured.Unstructured))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, kept.Event{Type: string(e.Type), Object: o})
		}
	}
	return all, false
}
