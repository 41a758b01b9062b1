package admit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// about says which widget a ConfigMap is about.
const about = "example.com/about"

// mustExist refuses ConfigMaps about widgets that there are not.
func mustExist(list admit.Lister) admit.Func {
	return func(ctx context.Context, a admit.Attributes) error {
		m, ok := a.GetObject().(*corev1.ConfigMap)
		if !ok || m.Annotations[about] == "" {
			return nil
		}
		all, err := list(ctx, widgets())
		if err != nil {
			return err
		}
		_, err = all.ByNamespace(m.Namespace).Get(m.Annotations[about])
		return err
	}
}

// count annotates ConfigMaps with the number of ConfigMaps.
func count(list admit.Lister) admit.Func {
	return func(ctx context.Context, a admit.Attributes) error {
		m, ok := a.GetObject().(*corev1.ConfigMap)
		if !ok || m.Annotations[about] == "" {
			return nil
		}
		all, err := list(ctx, configMaps())
		if err != nil {
			return err
		}
		found, err := all.List(labels.Everything())
		m.Annotations["example.com/before"] = fmt.Sprint(len(found))
		return err
	}
}

func TestLister(t *testing.T) {
	t.Parallel()
	config := start(t, core.Namespaces{}, core.ConfigMaps{}, widgetDefinition(),
		admit.MutateWith("count", count), admit.ValidateWith("must-exist", mustExist))
	dyn := dynamicClient(t, config)
	u := object(configMaps(), "about-one", nil)
	u.SetAnnotations(map[string]string{about: "one"})
	eventually(t, "there is no such widget", func() bool { // once the caches are filled
		_, err := tryObject(t, dyn, configMaps(), u)
		return apierrors.IsNotFound(err)
	})
	if _, err := dyn.Resource(widgets()).Namespace("default").Create(t.Context(), object(widgets(), "one", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the widget is seen", func() bool {
		_, err := tryObject(t, dyn, configMaps(), u)
		return err == nil
	})
	got, err := tryObject(t, dyn, configMaps(), u)
	if err != nil || got.GetAnnotations()["example.com/before"] != "0" {
		t.Errorf("there are no ConfigMaps: %v, %v", got, err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := dyn.Resource(crds).Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is not served any more is an error", func() bool {
		_, err := tryObject(t, dyn, configMaps(), u)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "list example.com/v1, Resource=widgets: the resource is not served")
	})
}

func TestListerNeedsAFunction(t *testing.T) {
	t.Parallel()
	for reason, p := range map[string]controlplane.Part{
		"no function": admit.ValidateWith("a", nil),
		"no name":     admit.MutateWith("", mustExist),
		"nil built":   admit.ValidateWith("a", func(admit.Lister) admit.Func { return nil }),
	} {
		if _, err := controlplane.New("lister").With(p).Build(); err == nil {
			t.Error(reason)
		}
	}
}
