package quota_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// limited runs a server with the part until the test ends, and creates a
// LimitRange in namespace default.
func limited(t *testing.T, items ...corev1.LimitRangeItem) *kubernetes.Clientset {
	t.Helper()
	s, err := controlplane.New("limits").Storage(memory.Store{}).With(
		core.Namespaces{}, kube.Core("pods", "persistentvolumeclaims"), quota.LimitRanges{},
	).Build()
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
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: items}}
	if _, err := client.CoreV1().LimitRanges("default").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return client
}

func amounts(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func pod(name string, requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}
}

func forbidden(t *testing.T, what string, err error, want string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("%s:\ngot  %v\nwant %s", what, err, want)
	}
}

// TestLimitedPods: a pod gets defaults, and is refused outside of the bounds.
func TestLimitedPods(t *testing.T) {
	t.Parallel()
	client := limited(t, corev1.LimitRangeItem{
		Type: corev1.LimitTypeContainer, Max: amounts("cpu", "1", "memory", "1Gi"), Min: amounts("memory", "6Mi"),
		Default: amounts("cpu", "500m", "memory", "64Mi"), DefaultRequest: amounts("cpu", "250m", "memory", "32Mi"),
	})
	pods := client.CoreV1().Pods("default")
	got, err := pods.Create(t.Context(), pod("plain", nil, nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.ResourceRequirements{Requests: amounts("cpu", "250m", "memory", "32Mi"), Limits: amounts("cpu", "500m", "memory", "64Mi")}
	if diff := cmp.Diff(want, got.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	const note = "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
	if a := got.Annotations["kubernetes.io/limit-ranger"]; a != note {
		t.Errorf("got annotation %q, want %q", a, note)
	}
	if got.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("the class of a pod comes after its defaults: got %s", got.Status.QOSClass)
	}
	got.Labels = map[string]string{"a": "b"}
	if got, err = pods.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update: %v", err)
	}
	if a := got.Annotations["kubernetes.io/limit-ranger"]; a != note {
		t.Errorf("got annotation %q after an update, want %q", a, note)
	}
	_, err = pods.Create(t.Context(), pod("large", nil, amounts("cpu", "2")), metav1.CreateOptions{})
	forbidden(t, "a large pod", err, `pods "large" is forbidden: maximum cpu usage per Container is 1, but limit is 2`)
	_, err = pods.Create(t.Context(), pod("odd", amounts("memory", "4Mi"), amounts("cpu", "2")), metav1.CreateOptions{})
	forbidden(t, "a pod that is too large and too small", err, `pods "odd" is forbidden: [`+
		`minimum memory usage per Container is 6Mi, but request is 4Mi, maximum cpu usage per Container is 1, but limit is 2]`)

	elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), elsewhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err = client.CoreV1().Pods("elsewhere").Create(t.Context(), pod("plain", nil, nil), metav1.CreateOptions{})
	if err != nil || len(got.Annotations) > 0 || len(got.Spec.Containers[0].Resources.Limits) > 0 {
		t.Errorf("another namespace has no limits: got %v, %v", got.Spec.Containers[0].Resources, err)
	}
}

// TestLimitedClaims: a claim is refused outside of the bounds, when it grows too.
func TestLimitedClaims(t *testing.T) {
	t.Parallel()
	client := limited(t, corev1.LimitRangeItem{
		Type: corev1.LimitTypePersistentVolumeClaim, Min: amounts("storage", "1Gi"), Max: amounts("storage", "2Gi"),
	})
	claims := client.CoreV1().PersistentVolumeClaims("default")
	claim := func(name, size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: amounts("storage", size)},
			},
		}
	}
	const large = ` is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`
	_, err := claims.Create(t.Context(), claim("large", "3Gi"), metav1.CreateOptions{})
	forbidden(t, "a large claim", err, `persistentvolumeclaims "large"`+large)
	_, err = claims.Create(t.Context(), claim("small", "1Mi"), metav1.CreateOptions{})
	forbidden(t, "a small claim", err, `persistentvolumeclaims "small" is forbidden: `+
		`minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi`)

	c, err := claims.Create(t.Context(), claim("right", "1Gi"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Status.Phase = corev1.ClaimBound
	if c, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Spec.Resources.Requests = amounts("storage", "3Gi")
	_, err = claims.Update(t.Context(), c, metav1.UpdateOptions{})
	forbidden(t, "a claim that grows too large", err, `persistentvolumeclaims "right"`+large)
	c.Spec.Resources.Requests = amounts("storage", "2Gi")
	if _, err := claims.Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a claim that grows: %v", err)
	}
}

// TestLimitRangesNeedsThemServed: Build says what to add.
