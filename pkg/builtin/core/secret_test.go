package core

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDefaultSecret(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason       string
		secret, want corev1.Secret
	}{
		"Type": {
			reason: "no type is Opaque",
			want:   corev1.Secret{Type: corev1.SecretTypeOpaque},
		},
		"KeepType": {
			reason: "a type that is set stays",
			secret: corev1.Secret{Type: "example.org/x"},
			want:   corev1.Secret{Type: "example.org/x"},
		},
		"StringData": {
			reason: "stringData wins over data of the same key, and is never shown",
			secret: corev1.Secret{
				Data:       map[string][]byte{"a": []byte("old"), "b": []byte("kept")},
				StringData: map[string]string{"a": "new", "c": ""},
			},
			want: corev1.Secret{
				Type: corev1.SecretTypeOpaque,
				Data: map[string][]byte{"a": []byte("new"), "b": []byte("kept"), "c": {}},
			},
		},
		"OnlyStringData": {
			reason: "data need not be there",
			secret: corev1.Secret{StringData: map[string]string{"a": "1"}},
			want:   corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("1")}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaultSecret(&tc.secret)
			if diff := cmp.Diff(tc.want, tc.secret); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateSecret(t *testing.T) {
	t.Parallel()
	data := func(keysAndValues ...string) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(keysAndValues); i += 2 {
			m[keysAndValues[i]] = []byte(keysAndValues[i+1])
		}
		return m
	}
	cases := map[string]struct {
		reason string
		secret corev1.Secret
		want   []string
	}{
		"Opaque":  {reason: "Opaque wants nothing", secret: corev1.Secret{Type: corev1.SecretTypeOpaque}},
		"OwnType": {reason: "a type that nobody knows wants nothing", secret: corev1.Secret{Type: "example.org/x"}},
		"BadKey": {
			reason: "keys follow the rule of ConfigMaps",
			secret: corev1.Secret{Data: data("a/b", "")},
			want:   []string{`data[a/b]: Invalid value: "a/b": ` + keyRule},
		},
		"LargestSize": {
			reason: "1 MiB is allowed; keys do not count",
			secret: corev1.Secret{Data: map[string][]byte{"a": bytes.Repeat([]byte("x"), corev1.MaxSecretSize), "b": nil}},
		},
		"TooLarge": {
			reason: "values count together",
			secret: corev1.Secret{Data: map[string][]byte{"a": bytes.Repeat([]byte("x"), corev1.MaxSecretSize), "b": {1}}},
			want:   []string{`data: Too long: may not be more than 1048576 bytes`},
		},
		"TokenWithoutAccount": {
			reason: "a token belongs to a service account",
			secret: corev1.Secret{Type: corev1.SecretTypeServiceAccountToken},
			want:   []string{`metadata.annotations[kubernetes.io/service-account.name]: Required value`},
		},
		"Token": {
			reason: "the token itself comes later",
			secret: corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.ServiceAccountNameKey: "sa"}},
				Type:       corev1.SecretTypeServiceAccountToken,
			},
		},
		"DockercfgMissing": {
			reason: "the key is required",
			secret: corev1.Secret{Type: corev1.SecretTypeDockercfg},
			want:   []string{`data[.dockercfg]: Required value`},
		},
		"DockercfgNotJSON": {
			reason: "the content is JSON, and is not repeated in the error",
			secret: corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: data(corev1.DockerConfigKey, "password")},
			want:   []string{`data[.dockercfg]: Invalid value: "<secret contents redacted>": invalid character 'p' looking for beginning of value`},
		},
		"Dockercfg": {
			reason: "any JSON object will do",
			secret: corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: data(corev1.DockerConfigKey, "{}")},
		},
		"DockerconfigjsonMissing": {
			reason: "the key is required",
			secret: corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: data("other", "")},
			want:   []string{`data[.dockerconfigjson]: Required value`},
		},
		"DockerconfigjsonEmpty": {
			reason: "an empty value is no JSON",
			secret: corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: data(corev1.DockerConfigJsonKey, "")},
			want:   []string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input`},
		},
		"Dockerconfigjson": {
			reason: "any JSON object will do",
			secret: corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: data(corev1.DockerConfigJsonKey, `{"auths":{}}`)},
		},
		"BasicAuthEmpty": {
			reason: "one of the two keys must be there",
			secret: corev1.Secret{Type: corev1.SecretTypeBasicAuth},
			want:   []string{`data[username]: Required value`, `data[password]: Required value`},
		},
		"BasicAuthOne": {
			reason: "one of the two is enough, and may be empty",
			secret: corev1.Secret{Type: corev1.SecretTypeBasicAuth, Data: data(corev1.BasicAuthPasswordKey, "")},
		},
		"SSHAuthEmpty": {
			reason: "here the value must not be empty",
			secret: corev1.Secret{Type: corev1.SecretTypeSSHAuth, Data: data(corev1.SSHAuthPrivateKey, "")},
			want:   []string{`data[ssh-privatekey]: Required value`},
		},
		"SSHAuth": {
			reason: "the key itself is not looked at",
			secret: corev1.Secret{Type: corev1.SecretTypeSSHAuth, Data: data(corev1.SSHAuthPrivateKey, "x")},
		},
		"TLSMissing": {
			reason: "both keys are required",
			secret: corev1.Secret{Type: corev1.SecretTypeTLS},
			want:   []string{`data[tls.crt]: Required value`, `data[tls.key]: Required value`},
		},
		"TLS": {
			reason: "values may be empty: a controller fills them in; that they do not match is a warning",
			secret: corev1.Secret{Type: corev1.SecretTypeTLS, Data: data(corev1.TLSCertKey, "", corev1.TLSPrivateKeyKey, "")},
		},
		"Finalizer": {
			reason: "built-in types want a domain in finalizers that Kubernetes does not know",
			secret: corev1.Secret{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"mine"}}},
			want:   []string{`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateSecret(t.Context(), &tc.secret))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateSecretUpdate(t *testing.T) {
	t.Parallel()
	data := map[string][]byte{"a": {1}}
	frozen := corev1.Secret{Immutable: ptr.To(true), Data: data}
	cases := map[string]struct {
		reason      string
		secret, old corev1.Secret
		want        []string
	}{
		"Mutable": {
			reason: "without the flag data may change",
			secret: frozen,
			old:    corev1.Secret{},
		},
		"Type": {
			reason: "the type never changes, as consumers rely on the keys that come with it",
			secret: corev1.Secret{Type: corev1.SecretTypeOpaque},
			old:    corev1.Secret{Type: corev1.SecretTypeTLS},
			want:   []string{`type: Invalid value: "Opaque": field is immutable`},
		},
		"EmptyAndNil": {
			reason: "an empty map is no change of none",
			secret: corev1.Secret{Immutable: ptr.To(true), Data: map[string][]byte{}},
			old:    corev1.Secret{Immutable: ptr.To(true)},
		},
		"Everything": {
			reason: "each changed field is named",
			secret: corev1.Secret{Data: map[string][]byte{"a": {2}}},
			old:    frozen,
			want: []string{
				"immutable: Forbidden: field is immutable when `immutable` is set",
				"data: Forbidden: field is immutable when `immutable` is set",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(validateSecretUpdate(t.Context(), &tc.secret, &tc.old))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSecretWarnings(t *testing.T) {
	t.Parallel()
	if got := secretWarnings(t.Context(), &corev1.Secret{Type: corev1.SecretTypeOpaque}); got != nil {
		t.Errorf("an Opaque secret has no certificate to warn about: %q", got)
	}
	want := []string{"tls: failed to find any PEM data in certificate input"}
	if diff := cmp.Diff(want, secretWarnings(t.Context(), &corev1.Secret{Type: corev1.SecretTypeTLS})); diff != "" {
		t.Errorf("a TLS secret without a key pair is accepted with a warning (-want +got):\n%s", diff)
	}
}
