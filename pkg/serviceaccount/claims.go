package serviceaccount

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// claims are what a token says, as in Kubernetes:
// https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims
// Times are seconds since 1970.
type claims struct {
	Audiences  audiences  `json:"aud,omitempty"`
	Expires    int64      `json:"exp,omitempty"`
	IssuedAt   int64      `json:"iat,omitempty"`
	Issuer     string     `json:"iss,omitempty"`
	ID         string     `json:"jti,omitempty"`
	Kubernetes kubernetes `json:"kubernetes.io"`
	NotBefore  int64      `json:"nbf,omitempty"`
	Subject    string     `json:"sub,omitempty"`
}

// kubernetes are the claims that only Kubernetes has.
type kubernetes struct {
	Namespace      string     `json:"namespace,omitempty"`
	Node           *reference `json:"node,omitempty"`
	Pod            *reference `json:"pod,omitempty"`
	Secret         *reference `json:"secret,omitempty"`
	ServiceAccount reference  `json:"serviceaccount"`
	// WarnAfter is when the client should have requested a new token.
	WarnAfter int64 `json:"warnafter,omitempty"`
}

// reference is an object as it was when the token was issued.
type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// audiences may also be one string, RFC 7519, section 4.1.3.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return err
	}
	*a = many
	return nil
}

// lasts sets the time in which the token is valid.
func (c *claims) lasts(now time.Time, d time.Duration) {
	c.IssuedAt, c.NotBefore, c.Expires = now.Unix(), now.Unix(), now.Add(d).Unix()
}
