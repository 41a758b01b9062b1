package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceAccountSecretsAreNames(t *testing.T) {
	t.Parallel()
	sa := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Kind: "Secret", Namespace: "other", Name: "a", UID: "x"}}}
	cleanSecretReferences(sa)
	if diff := cmp.Diff([]corev1.ObjectReference{{Name: "a"}}, sa.Secrets); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestServiceAccountWarnings(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        []string
	}{
		"None": {reason: "an ordinary account"},
		"Enforce": {
			reason:      "the annotation is deprecated whatever its value",
			annotations: map[string]string{"kubernetes.io/enforce-mountable-secrets": "false"},
			want: []string{"metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; " +
				"prefer separate namespaces to isolate access to mounted secrets"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := serviceAccountWarnings(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
