package quota

import (
	"context"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// witness is a part that hands out the plane it is in.
type witness chan *controlplane.Plane

// Install implements controlplane.Part.
func (w witness) Install(p *controlplane.Plan) error {
	p.Work(controlplane.Work{Name: "witness", Start: func(_ context.Context, plane *controlplane.Plane) error {
		w <- plane
		return nil
	}})
	return nil
}

// planeWith runs a plane that serves namespaces, LimitRanges and what the parts do until
// the test ends.
func planeWith(t *testing.T, parts ...controlplane.Part) (*controlplane.Plane, *kubernetes.Clientset) {
	t.Helper()
	w := make(witness, 1)
	s, err := controlplane.New("limits").Storage(memory.Store{}).With(core.Namespaces{}, core.LimitRanges{}, w).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	plane := <-w
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return plane, client
}

// TestFollow: only where something is limited there is an informer.
func TestFollow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		want   bool
	}{
		"Neither": {reason: "configmaps have no resources", parts: []controlplane.Part{core.ConfigMaps{}}},
		"Others":  {reason: "of what belongs to nodes, nodes have no limits", parts: []controlplane.Part{kube.Core("nodes")}},
		"Pods":    {reason: "pods have defaults and bounds", parts: []controlplane.Part{kube.Core("pods")}, want: true},
		"Claims":  {reason: "claims have bounds", parts: []controlplane.Part{kube.Core("persistentvolumeclaims")}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plane, _ := planeWith(t, append(tc.parts, LimitRanges{})...)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			l := newLimitRanger()
			if err := l.follow(ctx, plane); err != nil {
				t.Fatal(err)
			}
			_, informer := plane.Informers().WaitForCacheSyncWithContext(ctx).Synced[reflect.TypeFor[*corev1.LimitRange]()]
			if listed := l.lister.Load() != nil; informer != tc.want || listed != tc.want {
				t.Errorf("%s: informer %t, lister %t, want %t", tc.reason, informer, listed, tc.want)
			}
		})
	}
}

// TestRangesAreAsked: where the lister has none the API is asked, and its answer
// kept for a while.
func TestRangesAreAsked(t *testing.T) {
	t.Parallel()
	_, client := planeWith(t)
	r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	l := newLimitRanger()
	l.SetExternalKubeClientSet(client)
	create := func(name string) {
		t.Helper()
		r := r.DeepCopy()
		r.Name = name
		if _, err := client.CoreV1().LimitRanges("default").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := admission.NewAttributesRecord(podOf(), nil, corev1.SchemeGroupVersion.WithKind("Pod"), "default", "a",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
	expect := func(reason string, want int) {
		t.Helper()
		ranges, err := l.ranges(t.Context(), a)
		if err != nil || len(ranges) != want {
			t.Errorf("%s: got %d LimitRanges, %v, want %d", reason, len(ranges), err, want)
		}
	}

	expect("there are none yet", 0)
	create("b")
	expect("without a lister the answer is not kept", 1)

	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	lister := listers.NewLimitRangeLister(index)
	l.lister.Store(&lister)
	expect("the lister is behind", 1)
	create("a")
	expect("the answer is kept", 1)
	l.answers.Add("default", []*corev1.LimitRange(nil), -time.Second)
	expect("the answer is old", 2)
	if got, _ := l.ranges(t.Context(), a); len(got) != 2 || got[0].Name != "a" {
		t.Errorf("LimitRanges are sorted by name, got %v", got)
	}
	known := r.DeepCopy()
	known.Namespace = "default"
	if err := index.Add(known); err != nil {
		t.Fatal(err)
	}
	expect("the lister knows one", 1)

	l.lister.Store(nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.ranges(ended, a); err != nil {
		t.Errorf("others may wait for the same answer: %v", err)
	}
	nowhere, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetExternalKubeClientSet(nowhere)
	if _, err := l.ranges(t.Context(), a); !apierrors.IsForbidden(err) {
		t.Errorf("nobody answers: got %v, want it forbidden", err)
	}
}
