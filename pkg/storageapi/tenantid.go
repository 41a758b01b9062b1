package storageapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// tenantScheme begins the URI of a tenant.
const tenantScheme = "sailplane-etcd"

// tenantID is the EtcdStorage that a certificate was signed for. One of the same name that is made later has
// another UID: the certificates of the earlier one are not good for it.
type tenantID struct{ name, uid string }

// String is the URI that stands in the tenant's certificates: sailplane-etcd:///NAME?uid=UID.
func (t tenantID) String() string { return t.uris()[0].String() }

func (t tenantID) uris() []*url.URL {
	return []*url.URL{{Scheme: tenantScheme, Path: "/" + t.name, RawQuery: url.Values{"uid": {t.uid}}.Encode()}}
}

func (t tenantID) check() error {
	if problems := validation.IsDNS1123Label(t.name); len(problems) > 0 {
		return fmt.Errorf("tenant %q: its name is not a DNS label: %s", t.name, strings.Join(problems, "; "))
	}
	if t.uid == "" {
		return fmt.Errorf("tenant %q: it has no UID", t.name)
	}
	return nil
}

// parseTenantID reads a URI that String could have made, and refuses every other one: what is read two ways
// is read wrong somewhere.
func parseTenantID(u *url.URL) (tenantID, error) {
	t := tenantID{name: strings.TrimPrefix(u.Path, "/"), uid: u.Query().Get("uid")}
	if err := t.check(); err != nil {
		return tenantID{}, err
	}
	if u.String() != t.String() {
		return tenantID{}, errors.New("the URI does not name a tenant: " + u.Redacted())
	}
	return t, nil
}
