package kept

import (
	"fmt"
	"strings"
)

// lenience is an exception from the rule that every object is as it was listed.
type lenience struct {
	reason  string
	applies func(o Object) bool
	// gone says that the object may be another one, or away. Otherwise its UID
	// stays. What is stored may differ in both cases, unless exact says that
	// an object that is still there is as it was.
	gone, exact bool
}

// leniences are all exceptions. The first that applies counts.
func leniences() []lenience {
	in := func(o Object, group string) bool { return strings.HasPrefix(o.Resource, group+"/") }
	return []lenience{
		{
			reason:  "events expire",
			applies: func(o Object) bool { return strings.HasSuffix(o.Resource, "/events") },
			gone:    true, exact: true,
		},
		{
			reason: "a server registers the groups it serves, and removes those it does not",
			applies: func(o Object) bool {
				return in(o, "apiregistration.k8s.io") && !strings.Contains(o.Name, ".remote.")
			},
			gone: true,
		},
		{
			reason:  "a server writes into the status of a remote APIService whether its server answers",
			applies: func(o Object) bool { return in(o, "apiregistration.k8s.io") },
		},
		{
			reason:  "servers elect who does work by Leases in kube-system",
			applies: func(o Object) bool { return in(o, "coordination.k8s.io") && o.Namespace == "kube-system" },
			gone:    true,
		},
		{
			reason:  "a server writes the conditions of a namespace that it cannot empty yet",
			applies: func(o Object) bool { return o.Resource == "v1/namespaces" && strings.HasSuffix(o.Name, "-leaving") },
		},
		{
			reason:  "a server brings its default roles and bindings up to date at start",
			applies: func(o Object) bool { return in(o, "rbac.authorization.k8s.io") && !o.made() },
		},
		{
			reason:  "a server brings its default flow schemas and priority levels up to date at start",
			applies: func(o Object) bool { return in(o, "flowcontrol.apiserver.k8s.io") && !o.made() },
		},
	}
}

// made says that the program in keep/ made the object: whatever it makes has
// the word in its name or in that of its namespace.
func (o Object) made() bool {
	return strings.Contains(o.Namespace, Namespace) || strings.Contains(o.Name, Namespace)
}

// Differences says what is not as it was listed, a line for each object.
// Objects that were not listed may be there if the server made them.
func Differences(listed, found []Object) []string {
	byID := map[string]Object{}
	for _, o := range found {
		byID[o.id()] = o
	}
	var all []string
	for _, want := range listed {
		got, there := byID[want.id()]
		delete(byID, want.id())
		if difference := compare(want, got, there); difference != "" {
			all = append(all, want.id()+": "+difference)
		}
	}
	for _, o := range found {
		if _, extra := byID[o.id()]; extra && o.made() && !strings.HasSuffix(o.Resource, "/events") {
			all = append(all, o.id()+": was not listed: "+o.text())
		}
	}
	return all
}

// compare says how an object differs from what was listed, "" for not at all.
func compare(want, got Object, there bool) string {
	var l lenience
	l.exact = true
	for _, candidate := range leniences() {
		if candidate.applies(want) {
			l = candidate
			break
		}
	}
	switch {
	case !there && l.gone:
		return ""
	case !there:
		return "is not there"
	case !l.exact && (l.gone || want.UID == got.UID):
		return ""
	case want.UID != got.UID:
		return fmt.Sprintf("has the UID %s, want %s", got.UID, want.UID)
	case l.exact && want.ResourceVersion != got.ResourceVersion:
		return fmt.Sprintf("has the resource version %s, want %s: %s", got.ResourceVersion, want.ResourceVersion, got.text())
	case l.exact && want.SHA256 != got.SHA256:
		return "has another content: " + got.text()
	}
	return ""
}

// text is the start of an object's content.
func (o Object) text() string {
	const enough = 4000
	if len(o.content) > enough {
		return o.content[:enough] + "..."
	}
	return o.content
}
