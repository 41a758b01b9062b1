package core

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// Secrets is the part that serves secrets (v1). They are stored as they are
// unless the plane encrypts them.
type Secrets struct{}

// Install adds secrets to the core group.
func (Secrets) Install(p *controlplane.Plan) error { return shared().Serve(p, secrets()) }

func secrets() *apis.Definition {
	docs := corev1.Secret{}.SwaggerDoc()
	return apis.Resource[corev1.Secret, corev1.SecretList]("secrets",
		apis.NoGeneration(),
		apis.Default(defaultSecret),
		apis.Validate(validateSecret),
		apis.ValidateUpdate(validateSecretUpdate),
		apis.Warn(secretWarnings),
		apis.SelectableFields(map[string]func(*corev1.Secret) string{
			"type": func(s *corev1.Secret) string { return string(s.Type) },
		}),
		apis.Columns(func(s *corev1.Secret) []any {
			return []any{string(s.Type), int64(len(s.Data))}
		},
			metav1.TableColumnDefinition{Name: "Type", Type: "string", Description: docs["type"]},
			metav1.TableColumnDefinition{Name: "Data", Type: "string", Description: docs["data"]},
		),
	)
}

// defaultSecret moves stringData, which is write-only, into data. Kubernetes does
// so when it converts v1 to its internal version; here v1 is the internal version.
func defaultSecret(s *corev1.Secret) {
	setDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(_ context.Context, s *corev1.Secret) field.ErrorList {
	errs := validateMetaFinalizers(&s.ObjectMeta)
	data, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, check.Messages(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(s)...)
}

// validateSecretType checks that a secret of a well-known type has what its readers need.
func validateSecretType(s *corev1.Secret) field.ErrorList {
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		// The uid annotation and the token come later, from a controller.
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			path := field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey)
			return field.ErrorList{field.Required(path, "")}
		}
	case corev1.SecretTypeDockercfg:
		return requireJSON(s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return requireJSON(s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		// One of the two is enough, and it may be empty.
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return requireKeys(s, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(field.NewPath("data").Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return requireKeys(s, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func requireKeys(s *corev1.Secret, keys ...string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range keys {
		if _, ok := s.Data[key]; !ok {
			errs = append(errs, field.Required(field.NewPath("data").Key(key), ""))
		}
	}
	return errs
}

// requireJSON wants a JSON object under the key, and never repeats its content.
func requireJSON(s *corev1.Secret, key string) field.ErrorList {
	if errs := requireKeys(s, key); len(errs) > 0 {
		return errs
	}
	if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("data").Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(_ context.Context, s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if !isTrue(old.Immutable) {
		return errs
	}
	if !isTrue(s.Immutable) {
		errs = append(errs, immutableError("immutable"))
	}
	if !maps.EqualFunc(s.Data, old.Data, bytes.Equal) {
		errs = append(errs, immutableError("data"))
	}
	return errs
}

// longestKey is how many bytes a private key in PEM may have to be compared with its
// certificate.
const longestKey = 16 << 10

// secretWarnings warns of a key that does not belong to its certificate.
func secretWarnings(_ context.Context, s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	// A larger key is for no server, and takes seconds to look at.
	if n := len(s.Data[corev1.TLSPrivateKeyKey]); n > longestKey {
		return []string{fmt.Sprintf("tls: the private key has %d bytes, more than the %d of an RSA key of 16384 bits", n, longestKey)}
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
