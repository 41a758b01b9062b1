package kept_test

import (
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// TestDifferences makes sure that the comparison finds what is wrong, and
// lets servers do what they may do to objects of their own.
func TestDifferences(t *testing.T) {
	t.Parallel()
	object := func(resource, namespace, name string) kept.Object {
		return kept.Object{Resource: resource, Namespace: namespace, Name: name, UID: "u", ResourceVersion: "7", SHA256: "s"}
	}
	var (
		user      = object("v1/configmaps", "kept", "a")
		namespace = object("v1/namespaces", "", "default")
		role      = object("rbac.authorization.k8s.io/v1/clusterroles", "", "view")
		event     = object("v1/events", "kept", "happened")
		lease     = object("coordination.k8s.io/v1/leases", "kube-system", "leader")
		local     = object("apiregistration.k8s.io/v1/apiservices", "", "v1.apps")
		remote    = object("apiregistration.k8s.io/v1/apiservices", "", "v1.remote.kept.example.com")
	)
	is := func(o kept.Object, change func(*kept.Object)) []kept.Object {
		change(&o)
		return []kept.Object{o}
	}
	uid := func(o *kept.Object) { o.UID = "other" }
	version := func(o *kept.Object) { o.ResourceVersion = "8" }
	content := func(o *kept.Object) { o.SHA256 = "other" }
	same := func(*kept.Object) {}
	tests := map[string]struct {
		listed, found []kept.Object
		want          string // in the only difference; empty: none
	}{
		"the same":                      {listed: is(user, same), found: is(user, same)},
		"another UID":                   {listed: is(user, same), found: is(user, uid), want: "has the UID other"},
		"another resource version":      {listed: is(user, same), found: is(user, version), want: "has the resource version 8"},
		"another content":               {listed: is(user, same), found: is(user, content), want: "another content"},
		"away":                          {listed: is(user, same), want: "is not there"},
		"back":                          {found: is(user, same), want: "was not listed"},
		"namespace of the server, new":  {listed: is(namespace, same), found: is(namespace, uid), want: "has the UID other"},
		"new object of the server":      {found: is(role, same)},
		"default role, brought to date": {listed: is(role, same), found: is(role, func(o *kept.Object) { version(o); content(o) })},
		"default role, another":         {listed: is(role, same), found: is(role, uid), want: "has the UID other"},
		"default role, away":            {listed: is(role, same), want: "is not there"},
		"event, expired":                {listed: is(event, same)},
		"event, changed":                {listed: is(event, same), found: is(event, content), want: "another content"},
		"lease of the server":           {listed: is(lease, same), found: is(lease, uid)},
		"lease of the server, expired":  {listed: is(lease, same)},
		"group no longer served":        {listed: is(local, same)},
		"remote group, away":            {listed: is(remote, same), want: "is not there"},
		"remote group, its status":      {listed: is(remote, same), found: is(remote, func(o *kept.Object) { version(o); content(o) })},
		"remote group, another":         {listed: is(remote, same), found: is(remote, uid), want: "has the UID other"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kept.Differences(tc.listed, tc.found)
			if tc.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || tc.want == "" || !strings.Contains(got[0], tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
