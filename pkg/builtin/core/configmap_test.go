package core

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

const keyRule = `a valid config key must consist of alphanumeric characters, '-', '_' or '.' ` +
	`(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`

// texts are the errors as a client reads them.
func texts(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

func TestValidateConfigMap(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		cm     corev1.ConfigMap
		want   []string
	}{
		"Empty": {reason: "a ConfigMap needs no data"},
		"Valid": {
			reason: "letters, digits, dash, underscore and dot make a key, also one that starts with a dot",
			cm:     corev1.ConfigMap{Data: map[string]string{"a-b_C.1": "x", ".hidden": "y"}, BinaryData: map[string][]byte{"b": {0xff}}},
		},
		"BadKeys": {
			reason: "a key is a file name once mounted; errors come in the order of the keys",
			cm:     corev1.ConfigMap{Data: map[string]string{"b/c": "", "..": ""}, BinaryData: map[string][]byte{"x y": nil}},
			want: []string{
				`data[..]: Invalid value: "..": must not be '..'`,
				`data[b/c]: Invalid value: "b/c": ` + keyRule,
				`binaryData[x y]: Invalid value: "x y": ` + keyRule,
			},
		},
		"LongKey": {
			reason: "a key has at most 253 characters",
			cm:     corev1.ConfigMap{Data: map[string]string{strings.Repeat("a", 254): ""}},
			want: []string{
				`data[` + strings.Repeat("a", 254) + `]: Invalid value: "` + strings.Repeat("a", 254) + `": must be no more than 253 characters`,
			},
		},
		"TwiceTheSameKey": {
			reason: "a key of both maps would be one file",
			cm:     corev1.ConfigMap{Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"a": nil}},
			want:   []string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`},
		},
		"LargestSize": {
			reason: "1 MiB in both maps together is allowed",
			cm: corev1.ConfigMap{
				Data:       map[string]string{"a": strings.Repeat("x", corev1.MaxSecretSize-1)},
				BinaryData: map[string][]byte{"b": {1}},
			},
		},
		"TooLarge": {
			reason: "values of both maps count",
			cm: corev1.ConfigMap{
				Data:       map[string]string{"a": strings.Repeat("x", corev1.MaxSecretSize)},
				BinaryData: map[string][]byte{"b": {1}},
			},
			want: []string{`[]: Too long: may not be more than 1048576 bytes`},
		},
		"Finalizer": {
			reason: "built-in types want a domain in finalizers that Kubernetes does not know",
			cm:     corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"orphan", "example.org/a", "mine"}}},
			want:   []string{`metadata.finalizers[2]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateConfigMap(t.Context(), &tc.cm))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateConfigMapUpdate(t *testing.T) {
	t.Parallel()
	data := map[string]string{"a": "1"}
	binary := map[string][]byte{"b": {1}}
	frozen := corev1.ConfigMap{Immutable: ptr.To(true), Data: data, BinaryData: binary}
	cases := map[string]struct {
		reason  string
		cm, old corev1.ConfigMap
		want    []string
	}{
		"Mutable": {
			reason: "without the flag everything may change, the flag itself too",
			cm:     frozen,
			old:    corev1.ConfigMap{Immutable: ptr.To(false)},
		},
		"MetadataOnly": {
			reason: "metadata of an immutable ConfigMap may change",
			cm:     corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: data}, Immutable: ptr.To(true), Data: data, BinaryData: binary},
			old:    frozen,
		},
		"EmptyAndNil": {
			reason: "an empty map is no change of none",
			cm:     corev1.ConfigMap{Immutable: ptr.To(true), Data: map[string]string{}},
			old:    corev1.ConfigMap{Immutable: ptr.To(true)},
		},
		"Unset": {
			reason: "the flag cannot be taken back",
			cm:     corev1.ConfigMap{Data: data, BinaryData: binary},
			old:    frozen,
			want:   []string{"immutable: Forbidden: field is immutable when `immutable` is set"},
		},
		"Everything": {
			reason: "each changed field is named",
			cm:     corev1.ConfigMap{Immutable: ptr.To(false), Data: map[string]string{"a": "2"}, BinaryData: map[string][]byte{"b": {2}}},
			old:    frozen,
			want: []string{
				"immutable: Forbidden: field is immutable when `immutable` is set",
				"data: Forbidden: field is immutable when `immutable` is set",
				"binaryData: Forbidden: field is immutable when `immutable` is set",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateConfigMapUpdate(t.Context(), &tc.cm, &tc.old))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
