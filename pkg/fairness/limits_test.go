package fairness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// create makes a ConfigMap in namespace default.
func create(ctx context.Context, client rest.Interface, name string, bytes int) error {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": strings.Repeat("x", bytes)},
	}
	body, err := json.Marshal(cm)
	if err != nil {
		return err
	}
	return client.Post().MaxRetries(0).AbsPath("/api/v1/namespaces/default/configmaps").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// refused tells what is wrong with a refusal.
func refused(t *testing.T, err error, code int, want string) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got error %v: want a Status of %d", err, code)
	}
	s := status.Status()
	if int(s.Code) != code || !strings.Contains(s.Message, want) {
		t.Errorf("got %d %q: want %d %q", s.Code, s.Message, code, want)
	}
	if after, ok := apierrors.SuggestsClientDelay(err); ok != (code == http.StatusTooManyRequests) || ok && after < 1 {
		t.Errorf("it says to come back after %d s: %v", after, ok)
	}
}

func TestRequestsPerSecond(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{RequestsPerSecond: 0.001, Burst: 2})
	ann := s.as(t, "ann")
	for range 2 {
		if err := ann.Get().AbsPath("/version").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	err := ann.Get().MaxRetries(0).AbsPath("/version").Do(t.Context()).Error()
	refused(t, err, http.StatusTooManyRequests, `limit RequestsPerSecond is 0.001 with Burst 2: more come from user "ann"`)
	if after, _ := apierrors.SuggestsClientDelay(err); after != 1000 {
		t.Errorf("it says to come back after %d s: want 1000", after)
	}
	if err := s.as(t, "bob").Get().AbsPath("/version").Do(t.Context()).Error(); err != nil {
		t.Errorf("another user: %v", err)
	}
	for range 5 {
		if _, err := s.Discovery().ServerVersion(); err != nil {
			t.Errorf("the server itself: %v", err)
		}
	}
}

func TestObjectBytes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := serve(t, fairness.Limits{ObjectBytes: 1000})
	ann := s.as(t, "ann")
	if err := create(ctx, ann, "small", 10); err != nil {
		t.Fatalf("a small object: %v", err)
	}
	err := create(ctx, ann, "large", 1000)
	refused(t, err, http.StatusRequestEntityTooLarge, `limit ObjectBytes is 1000: configmaps "large" has 1`)

	patch := func(name, body string) error {
		return ann.Patch("application/merge-patch+json").AbsPath("/api/v1/namespaces/default/configmaps/" + name).
			Body([]byte(body)).Do(ctx).Error()
	}
	grow := patch("small", fmt.Sprintf(`{"data":{"y":%q}}`, strings.Repeat("y", 1000)))
	refused(t, grow, http.StatusRequestEntityTooLarge, `configmaps "small" has 1`)

	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "old", Finalizers: []string{"example.com/wait"}},
		Data:       map[string]string{"x": strings.Repeat("x", 2000)},
	}
	if _, err := s.CoreV1().ConfigMaps("default").Create(ctx, large, metav1.CreateOptions{}); err != nil {
		t.Fatalf("the server itself: %v", err)
	}
	if err := patch("old", `{"data":{"x":"`+strings.Repeat("x", 1500)+`"},"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("an object that gets smaller: %v", err)
	}
}

func TestObjectsPerResource(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := serve(t, fairness.Limits{ObjectsPerResource: 6})
	ann := s.as(t, "ann")
	for i := range 6 {
		if err := create(ctx, ann, fmt.Sprintf("c%d", i), 1); err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
	}
	refused(t, create(ctx, ann, "more", 1), http.StatusTooManyRequests,
		`limit ObjectsPerResource is 6: namespace "default" already has that many configmaps`)
	if err := ann.Delete().AbsPath("/api/v1/namespaces/default/configmaps/c0").Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	if err := create(ctx, ann, "more", 1); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	// Cluster-scoped objects are counted together: some namespaces are there.
	var err error
	for i := 0; i < 7 && err == nil; i++ {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n%d"}}`, i)
		err = ann.Post().MaxRetries(0).AbsPath("/api/v1/namespaces").SetHeader("Content-Type", "application/json").
			Body([]byte(body)).Do(ctx).Error()
	}
	refused(t, err, http.StatusTooManyRequests, "limit ObjectsPerResource is 6: the server already has that many namespaces")
}

func TestWatchesPerUser(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{WatchesPerUser: 1})
	ann := s.as(t, "ann")
	watch := func(ctx context.Context, client rest.Interface) error {
		w, err := client.Get().MaxRetries(0).AbsPath("/api/v1/configmaps").
			VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(ctx)
		if err == nil {
			t.Cleanup(w.Stop)
		}
		return err
	}
	first, end := context.WithCancel(t.Context())
	if err := watch(first, ann); err != nil {
		t.Fatal(err)
	}
	refused(t, watch(t.Context(), ann), http.StatusTooManyRequests, `limit WatchesPerUser is 1: user "ann" already has that many watches open`)
	if err := watch(t.Context(), s.as(t, "bob")); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := ann.Get().AbsPath("/api/v1/configmaps").Do(t.Context()).Error(); err != nil {
		t.Errorf("a list: %v", err)
	}
	end()
	until(t, "a watch that ended makes room", func() bool { return watch(t.Context(), ann) == nil })
}
