package serviceaccount

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// The paths that OpenID Connect Discovery and kube-apiserver have.
const (
	configurationPath = "/.well-known/openid-configuration"
	keysPath          = "/openid/v1/jwks"
)

// configuration is how others find the keys, OpenID Connect Discovery 1.0,
// section 3, as far as it is about verifying tokens.
type configuration struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// published answers with a document of the keys, which is the same for everybody and seldom
// changes.
func (i *issuer) published(document func(*keyring) (contentType string, document any, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := i.now.Load()
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the document can only be read", http.StatusMethodNotAllowed)
			return
		case now == nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is starting", http.StatusServiceUnavailable)
			return
		}
		contentType, content, err := document(now.keys)
		body, err2 := json.Marshal(content)
		if err := errors.Join(err, err2); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=3600")
		_, _ = w.Write(body)
	})
}

func (i *issuer) configuration(keys *keyring) configuration {
	var algorithms []string
	for _, k := range keys.all {
		if !slices.Contains(algorithms, k.alg) {
			algorithms = append(algorithms, k.alg)
		}
	}
	return configuration{
		Issuer: i.Issuer, KeysURI: strings.TrimSuffix(i.Issuer, "/") + keysPath,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: algorithms,
	}
}

// keySet is a JWK set, RFC 7517, section 5.
type keySet struct {
	Keys []jwk `json:"keys"`
}

func (r *keyring) set() (keySet, error) {
	var s keySet
	for _, k := range r.all {
		j, err := k.jwk()
		if err != nil {
			return keySet{}, err
		}
		s.Keys = append(s.Keys, j)
	}
	return s, nil
}
