package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelMetadataName: "b", "c": "d"}}}
	defaultNamespace(&ns)
	want := corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelMetadataName: "a", "c": "d"}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	if diff := cmp.Diff(want, ns); diff != "" {
		t.Errorf("the label always tells the name, whatever a client wrote (-want +got):\n%s", diff)
	}

	generated := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
	defaultNamespace(&generated)
	if generated.Labels != nil {
		t.Errorf("a name that is not generated yet cannot be the label's value: %v", generated.Labels)
	}
	generated.Name = "a-1"
	namespaceCreate{}.Canonicalize(&generated)
	if got := generated.Labels[corev1.LabelMetadataName]; got != "a-1" {
		t.Errorf("a generated name is the label's value as well: got %q", got)
	}
}

func TestPrepareNamespace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		given  []corev1.FinalizerName
		want   []corev1.FinalizerName
	}{
		"None":   {reason: "somebody has to delete the content", want: []corev1.FinalizerName{"kubernetes"}},
		"Others": {reason: "others stay, first", given: []corev1.FinalizerName{"example.org/a"}, want: []corev1.FinalizerName{"example.org/a", "kubernetes"}},
		"There":  {reason: "not twice", given: []corev1.FinalizerName{"kubernetes"}, want: []corev1.FinalizerName{"kubernetes"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := corev1.Namespace{
				Spec:   corev1.NamespaceSpec{Finalizers: tc.given},
				Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating, Conditions: []corev1.NamespaceCondition{{}}},
			}
			prepareNamespace(t.Context(), &ns)
			want := corev1.Namespace{
				Spec:   corev1.NamespaceSpec{Finalizers: tc.want},
				Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
			}
			if diff := cmp.Diff(want, ns); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateNamespace(t *testing.T) {
	t.Parallel()
	const notStandard = "name is neither a standard finalizer name nor is it fully qualified"
	const notQualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with " +
		"an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', " +
		"regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
	finalizers := func(names ...corev1.FinalizerName) corev1.NamespaceSpec {
		return corev1.NamespaceSpec{Finalizers: names}
	}
	deleted := metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.NewTime(time.Unix(1, 0)))}
	cases := map[string]struct {
		reason   string
		ns       corev1.Namespace
		create   []string
		status   []string
		finalize []string
	}{
		"Active": {
			reason: "what a new namespace looks like",
			ns:     corev1.Namespace{Spec: finalizers("kubernetes"), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		},
		"Terminating": {
			reason: "what a deleted namespace looks like",
			ns:     corev1.Namespace{ObjectMeta: deleted, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
		},
		"TerminatingNotDeleted": {
			reason: "only a delete terminates",
			ns:     corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
			status: []string{"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"},
		},
		"ActiveDeleted": {
			reason: "nothing takes a delete back",
			ns:     corev1.Namespace{ObjectMeta: deleted, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
			status: []string{"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"},
		},
		"Finalizers": {
			reason: "Kubernetes gives the index in /finalize only",
			ns:     corev1.Namespace{Spec: finalizers("example.org/a", "mine", "a b"), Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
			create: []string{
				`spec.finalizers: Invalid value: "mine": ` + notStandard,
				`spec.finalizers: Invalid value: "a b": ` + notQualified,
				`spec.finalizers: Invalid value: "a b": ` + notStandard,
			},
			finalize: []string{
				`spec.finalizers[1]: Invalid value: "mine": ` + notStandard,
				`spec.finalizers[2]: Invalid value: "a b": ` + notQualified,
				`spec.finalizers[2]: Invalid value: "a b": ` + notStandard,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.create, texts(validateNamespace(t.Context(), &tc.ns))); diff != "" {
				t.Errorf("create: %s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.status, texts(validateNamespaceStatus(&tc.ns))); diff != "" {
				t.Errorf("status: %s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.finalize, texts(validateNamespaceFinalize(&tc.ns))); diff != "" {
				t.Errorf("finalize: %s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPin(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u1", ResourceVersion: "5"}}
	preconditions := func(uid *types.UID, rv *string) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: uid, ResourceVersion: rv}}
	}
	const conflict = `Operation cannot be fulfilled on namespaces "a": `
	cases := map[string]struct {
		reason  string
		options *metav1.DeleteOptions
		want    string
	}{
		"None":            {reason: "the UID is always pinned"},
		"Same":            {reason: "what holds is no conflict", options: preconditions(ptr.To(types.UID("u1")), ptr.To("5"))},
		"UID":             {reason: "another namespace of that name", options: preconditions(ptr.To(types.UID("u2")), nil), want: conflict + "Precondition failed: UID in precondition: u2, UID in object meta: u1"},
		"ResourceVersion": {reason: "changed meanwhile", options: preconditions(nil, ptr.To("4")), want: conflict + "Precondition failed: ResourceVersion in precondition: 4, ResourceVersion in object meta: 5"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := tc.options.DeepCopy()
			pinned, err := pin(tc.options, ns)
			got := ""
			if err != nil {
				got = err.Error()
			} else if *pinned.Preconditions.UID != ns.UID {
				t.Errorf("%s: got UID %q", tc.reason, *pinned.Preconditions.UID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(given, tc.options); diff != "" {
				t.Errorf("the caller's options must stay (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDependentsFinalizers(t *testing.T) {
	t.Parallel()
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	cases := map[string]struct {
		reason  string
		have    []string
		options metav1.DeleteOptions
		want    []string
	}{
		"NoPolicy":   {reason: "what is there stays", have: []string{orphan, "example.org/a"}, want: []string{orphan, "example.org/a"}},
		"Orphan":     {reason: "one replaces the other", have: []string{foreground, "example.org/a"}, options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}, want: []string{"example.org/a", orphan}},
		"Foreground": {reason: "added", options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}, want: []string{foreground}},
		"Background": {reason: "none of the two", have: []string{orphan, foreground, "example.org/a"}, options: metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, want: []string{"example.org/a"}},
		//nolint:staticcheck // the deprecated field is what this row is about
		"Deprecated": {reason: "orphanDependents: false is foreground", options: metav1.DeleteOptions{OrphanDependents: ptr.To(false)}, want: []string{foreground}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, dependentsFinalizers(tc.have, &tc.options)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
