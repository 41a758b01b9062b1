package storageapi

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// flunders is an EtcdStorage as its API stores it.
func flunders(changes ...func(*v1alpha1.EtcdStorage)) *v1alpha1.EtcdStorage {
	s := &v1alpha1.EtcdStorage{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "EtcdStorage"},
		ObjectMeta: metav1.ObjectMeta{Name: "flunders", UID: "d2a5"},
		Spec: v1alpha1.EtcdStorageSpec{
			ClientCertificate: v1alpha1.CertificateDestination{Secret: v1alpha1.Destination{Namespace: "wardle", Name: "etcd-client"}},
			Authority:         v1alpha1.AuthorityDestination{ConfigMap: v1alpha1.Destination{Namespace: "wardle", Name: "etcd-ca"}},
			RotateAfter:       &metav1.Duration{Duration: 720 * time.Hour},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// served is the client of a server's etcdstorages.
func served(t *testing.T, most Limits, storages ...string) dynamic.ResourceInterface {
	t.Helper()
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(newGroup(most, storages)).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	c, err := dynamic.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(v1alpha1.SchemeGroupVersion().WithResource("etcdstorages"))
}

func encoded(t *testing.T, s *v1alpha1.EtcdStorage) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

func decoded(t *testing.T, u *unstructured.Unstructured) *v1alpha1.EtcdStorage {
	t.Helper()
	s := &v1alpha1.EtcdStorage{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// causes are the fields that an answer refuses.
func causes(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	return slices.Compact(slices.Sorted(slices.Values(fields)))
}

// TestRefused: what an EtcdStorage may not say is refused when it is made, with the field that is wrong.
func TestRefused(t *testing.T) {
	t.Parallel()
	type object = v1alpha1.EtcdStorage
	rotate := func(d time.Duration) func(*object) {
		return func(s *object) { s.Spec.RotateAfter = &metav1.Duration{Duration: d} }
	}
	size := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	limits := func(l v1alpha1.EtcdStorageLimits) func(*object) { return func(s *object) { s.Spec.Limits = l } }
	cases := map[string]struct {
		change func(*object)
		want   []string // nil: it is allowed
	}{
		"as it is":       {func(*object) {}, nil},
		"longest name":   {func(s *object) { s.Name = strings.Repeat("a", 63) }, nil},
		"long name":      {func(s *object) { s.Name = strings.Repeat("a", 64) }, []string{"metadata.name"}},
		"name with dots": {func(s *object) { s.Name = "a.b" }, []string{"metadata.name"}},
		"no destinations": {func(s *object) { s.Spec = v1alpha1.EtcdStorageSpec{} }, []string{
			"spec.authority.configMap.name", "spec.authority.configMap.namespace",
			"spec.clientCertificate.secret.name", "spec.clientCertificate.secret.namespace",
		}},
		"secret's namespace":    {func(s *object) { s.Spec.ClientCertificate.Secret.Namespace = "a.b" }, []string{"spec.clientCertificate.secret.namespace"}},
		"secret's name":         {func(s *object) { s.Spec.ClientCertificate.Secret.Name = "../a" }, []string{"spec.clientCertificate.secret.name"}},
		"config map's name":     {func(s *object) { s.Spec.Authority.ConfigMap.Name = "A" }, []string{"spec.authority.configMap.name"}},
		"names with dots":       {func(s *object) { s.Spec.Authority.ConfigMap.Name = "a.b" }, nil},
		"shortest rotation":     {rotate(10 * time.Minute), nil},
		"too short a rotation":  {rotate(10*time.Minute - 1), []string{"spec.rotateAfter"}},
		"longest rotation":      {rotate(8760 * time.Hour), nil},
		"too long a rotation":   {rotate(8760*time.Hour + 1), []string{"spec.rotateAfter"}},
		"named storage":         {func(s *object) { s.Spec.Storage = "shared" }, nil},
		"storage without a say": {func(s *object) { s.Spec.Storage = "secret" }, []string{"spec.storage"}},
		"greatest limits": {limits(v1alpha1.EtcdStorageLimits{
			Keys: new(int64(100_000)), Bytes: size("256Mi"), ValueBytes: size("1536Ki"), Watches: new(int64(1000)), WritesPerSecond: new(int64(100)),
		}), nil},
		"too great limits": {
			limits(v1alpha1.EtcdStorageLimits{
				Keys: new(int64(100_001)), Bytes: size("257Mi"), ValueBytes: size("9E"), Watches: new(int64(1001)), WritesPerSecond: new(int64(101)),
			}),
			[]string{"spec.limits.bytes", "spec.limits.keys", "spec.limits.valueBytes", "spec.limits.watches", "spec.limits.writesPerSecond"},
		},
		"limits of nothing": {
			limits(v1alpha1.EtcdStorageLimits{
				Keys: new(int64(0)), Bytes: size("0"), ValueBytes: size("-1"), Watches: new(int64(0)), WritesPerSecond: new(int64(-1)),
			}),
			[]string{"spec.limits.bytes", "spec.limits.keys", "spec.limits.valueBytes", "spec.limits.watches", "spec.limits.writesPerSecond"},
		},
		"half a byte":       {limits(v1alpha1.EtcdStorageLimits{Bytes: size("500m")}), []string{"spec.limits.bytes"}},
		"more than numbers": {limits(v1alpha1.EtcdStorageLimits{Bytes: size("1e30")}), []string{"spec.limits.bytes"}},
	}
	client := served(t, Limits{Bytes: 256 << 20}, "shared", "fast")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.Create(t.Context(), encoded(t, flunders(c.change)), metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			})
			if diff := cmp.Diff(c.want, causes(err)); diff != "" || (err == nil) != (c.want == nil) {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestServed: what is left out is what the operator allows now, and not stored; destinations are kept,
// and the status is the server's.
func TestServed(t *testing.T) {
	t.Parallel()
	client := served(t, Limits{}, "shared")
	made, err := client.Create(t.Context(), encoded(t, flunders(func(s *v1alpha1.EtcdStorage) {
		s.Spec.RotateAfter = nil
		s.Status.Endpoint = "https://elsewhere"
	})), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatal(err)
	}
	got := decoded(t, made)
	if diff := cmp.Diff(flunders().Spec, got.Spec); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.EtcdStorageStatus{}, got.Status); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}

	moved := got.DeepCopy()
	moved.Spec.ClientCertificate.Secret.Name, moved.Spec.Authority.ConfigMap.Namespace = "other", "other"
	_, err = client.Update(t.Context(), encoded(t, moved), metav1.UpdateOptions{})
	if diff := cmp.Diff([]string{"spec.authority", "spec.clientCertificate"}, causes(err)); diff != "" {
		t.Errorf("other destinations: %v\n%s", err, diff)
	}

	got.Spec.Storage, got.Spec.Limits.Keys, got.Spec.Limits.Bytes = "shared", new(int64(10)), new(resource.MustParse("256Mi"))
	if _, err := client.Update(t.Context(), encoded(t, got), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Applying the same, written otherwise, changes nothing: the schema knows quantities and durations.
	changed, err := client.Apply(t.Context(), "flunders", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.sailplane.dev/v1alpha1", "kind": "EtcdStorage", "metadata": map[string]any{"name": "flunders"},
		"spec": map[string]any{
			"clientCertificate": map[string]any{"secret": map[string]any{"namespace": "wardle", "name": "etcd-client"}},
			"authority":         map[string]any{"configMap": map[string]any{"namespace": "wardle", "name": "etcd-ca"}},
			"rotateAfter":       "43200m", "storage": "shared", "limits": map[string]any{"keys": int64(10), "bytes": "262144Ki"},
		},
	}}, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	got = decoded(t, changed)
	got.Status = v1alpha1.EtcdStorageStatus{
		Endpoint: "https://sailplane:6443", Storage: "shared", ObservedGeneration: got.Generation,
		Used: &v1alpha1.EtcdStorageUsage{Keys: 41, Bytes: 30211},
	}
	meta.SetStatusCondition(&got.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCertificatesWritten,
	})
	changed, err = client.UpdateStatus(t.Context(), encoded(t, got), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after := decoded(t, changed); after.Generation != 2 || after.Status.Used.Keys != 41 {
		t.Errorf("generation %d, status %+v", after.Generation, after.Status)
	}
}

// TestColumns: kubectl get shows whether the storage is ready, and how much is stored where; nothing is
// made up before it is known.
func TestColumns(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range columns() {
		if names = append(names, c.Name); c.Description == "" {
			t.Errorf("column %s has no description", c.Name)
		}
	}
	if diff := cmp.Diff([]string{"Ready", "Keys", "Bytes", "Storage", "Reason", "Endpoint"}, names); diff != "" {
		t.Error(diff)
	}
	s := flunders()
	if diff := cmp.Diff([]any{"Unknown", nil, nil, "", "", ""}, row(s)); diff != "" {
		t.Errorf("new (-want +got):\n%s", diff)
	}
	s.Status = v1alpha1.EtcdStorageStatus{
		Endpoint: "https://sailplane:6443", Storage: "shared", Used: &v1alpha1.EtcdStorageUsage{Bytes: 7},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: v1alpha1.ReasonLimitReached}},
	}
	if diff := cmp.Diff([]any{"False", int64(0), int64(7), "shared", "LimitReached", "https://sailplane:6443"}, row(s)); diff != "" {
		t.Errorf("full (-want +got):\n%s", diff)
	}
}

// TestOperatorAllowsLess: an object that was allowed before can be changed otherwise, such as when its
// finalizer goes, and has no more than what is allowed now.
func TestOperatorAllowsLess(t *testing.T) {
	t.Parallel()
	old := flunders().Spec
	old.Storage = "gone"
	old.Limits = v1alpha1.EtcdStorageLimits{Keys: new(int64(50_000)), Bytes: new(resource.MustParse("1Gi"))}
	now := operator{most: Limits{Keys: 10_000, Bytes: 1 << 20}.orDefaults(), storages: []string{"shared"}}
	cases := map[string]struct {
		change func(*v1alpha1.EtcdStorageSpec)
		want   []string
	}{
		"nothing":      {func(*v1alpha1.EtcdStorageSpec) {}, nil},
		"same bytes":   {func(s *v1alpha1.EtcdStorageSpec) { s.Limits.Bytes = new(resource.MustParse("1024Mi")) }, nil},
		"another":      {func(s *v1alpha1.EtcdStorageSpec) { s.KeepData = true }, nil},
		"less":         {func(s *v1alpha1.EtcdStorageSpec) { s.Limits.Keys = new(int64(10_000)) }, nil},
		"none":         {func(s *v1alpha1.EtcdStorageSpec) { s.Limits, s.Storage = v1alpha1.EtcdStorageLimits{}, "" }, nil},
		"not enough":   {func(s *v1alpha1.EtcdStorageSpec) { s.Limits.Keys = new(int64(10_001)) }, []string{"spec.limits.keys"}},
		"lost as well": {func(s *v1alpha1.EtcdStorageSpec) { s.Storage = "lost" }, []string{"spec.storage"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *old.DeepCopy()
			c.change(&s)
			var got []string
			for _, err := range now.allows(&s, &old) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	want := Limits{Keys: 10_000, Bytes: 1 << 20, ValueBytes: 3 << 19, Watches: 1000, WritesPerSecond: 100}
	if diff := cmp.Diff(want, now.most.of(old.Limits)); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

// TestLimits: a tenant has the smaller of what it asks for and what it may.
func TestLimits(t *testing.T) {
	t.Parallel()
	var asked v1alpha1.EtcdStorageLimits
	text := `{"keys": 10000, "bytes": "256Mi", "valueBytes": "2Mi", "watches": 7, "writesPerSecond": 1000}`
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		t.Fatal(err)
	}
	want := Limits{Keys: 10_000, Bytes: 256 << 20, ValueBytes: 1536 << 10, Watches: 7, WritesPerSecond: 100}
	if diff := cmp.Diff(want, Limits{}.of(asked)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = Limits{Keys: 1, Bytes: 2, ValueBytes: 3, Watches: 4, WritesPerSecond: 5}
	if diff := cmp.Diff(want, want.of(v1alpha1.EtcdStorageLimits{})); diff != "" {
		t.Errorf("nothing asked (-want +got):\n%s", diff)
	}
}
