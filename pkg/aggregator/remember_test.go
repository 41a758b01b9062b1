package aggregator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// conditions are those of an APIService, in order, "Type=Status".
func conditions(s *apiregistrationv1.APIService) string {
	var all []string
	for _, c := range s.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestWasAvailable: that an APIService was Available is kept in its status, through
// writes by what knows nothing of it and a restart.
func TestWasAvailable(t *testing.T) {
	t.Parallel()
	storage := memory.Store{}.Open()
	if err := storage.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := storage.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, stop := run(t, kept{storage}, aggregator.APIServices{})
	client := services(t, config).ApiregistrationV1().APIServices()
	service, err := client.Create(t.Context(), remoteService(nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(reason, patch, want string) {
		t.Helper()
		service, err = client.Patch(t.Context(), service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		if got := conditions(service); got != want {
			t.Errorf("%s: conditions %q, want %q", reason, got, want)
		}
	}
	patch("it never was", `{"status": {"conditions": [{"type": "Available", "status": "False"}]}}`, "Available=False")
	patch("it is now", `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`, "Available=True WasAvailable=True")
	patch("it was", `{"status": {"conditions": [{"type": "Available", "status": "False"}]}}`, "Available=False WasAvailable=True")
	patch("nobody takes it back", `{"status": {"conditions": [{"type": "WasAvailable", "status": "False"}]}}`, "WasAvailable=True")
	patch("nobody takes it off", `{"status": null}`, "WasAvailable=True")
	since := service.Status.Conditions[0].LastTransitionTime
	if _, err = client.Patch(t.Context(), service.Name, types.MergePatchType,
		[]byte(`{"spec": {"versionPriority": 11}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	stop()
	config, _ = run(t, kept{storage}, aggregator.APIServices{})
	client = services(t, config).ApiregistrationV1().APIServices()
	patch("it is again", `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`, "Available=True WasAvailable=True")
	if got := service.Status.Conditions[1].LastTransitionTime; !got.Equal(&since) {
		t.Errorf("it was first Available at %v, then at %v", since, got)
	}
	if err := client.Delete(t.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if service, err = client.Create(t.Context(), remoteService(nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch("another one never was", `{"status": {"conditions": [{"type": "Available", "status": "False"}]}}`, "Available=False")
	local, err := client.Get(t.Context(), "v1.coordination.k8s.io", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := conditions(local); got != "Available=True" {
		t.Errorf("an APIService of the plane's own has conditions %q", got)
	}
}
