package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// TestSizeOf compares estimates with what a copy allocates. It runs alone: the runtime
// counts what all goroutines allocate.
func TestSizeOf(t *testing.T) { //nolint:paralleltest // see above
	items := func(n int, item func(int) any) kruntime.Object {
		list := make([]any, n)
		for i := range list {
			list[i] = item(i)
		}
		return &unstructured.Unstructured{Object: map[string]any{"kind": "A", "apiVersion": "b/v1", "spec": list}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.Now()}}
	for i := range 1000 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprint(i), Args: []string{"a", "b"}, Env: []corev1.EnvVar{{Name: "a"}},
			SecurityContext: &corev1.SecurityContext{},
		})
	}
	config := &corev1.ConfigMap{Data: map[string]string{}, BinaryData: map[string][]byte{"b": make([]byte, 10_000)}}
	for i := range 1000 {
		config.Data[fmt.Sprint("key-", i)] = strings.Repeat("a", 100)
	}
	for name, object := range map[string]kruntime.Object{
		"small maps":  items(1000, func(i int) any { return map[string]any{"a": int64(i)} }),
		"empty maps":  items(1000, func(int) any { return map[string]any{} }),
		"empty lists": items(1000, func(int) any { return []any{} }),
		"numbers":     items(10_000, func(i int) any { return int64(i + 1000) }),
		"large maps": items(10, func(int) any {
			m := map[string]any{}
			for i := range 1000 {
				m[fmt.Sprint("key-", i)] = true
			}
			return m
		}),
		"containers": pod,
		"strings":    config,
	} {
		t.Run(name, func(t *testing.T) {
			estimate := sizeOf(object)
			var before, after runtime.MemStats
			const copies = 10
			runtime.ReadMemStats(&before)
			for range copies {
				object.DeepCopyObject()
			}
			runtime.ReadMemStats(&after)
			copied := int64(after.TotalAlloc-before.TotalAlloc) / copies //nolint:gosec // it only grows
			// A copy shares strings.
			if name == "strings" {
				copied += 1000 * 108
			}
			if estimate < copied/2 || estimate > 2*copied {
				t.Errorf("estimated %d bytes, a copy has %d", estimate, copied)
			}
		})
	}
}
