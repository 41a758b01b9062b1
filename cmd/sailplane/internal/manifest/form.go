package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// Form says what of an object is kept. The zero value keeps what somebody who
// makes the object writes: neither the status nor what a server sets.
type Form struct {
	// Status keeps the status, but for kinds whose status only a server writes.
	Status bool
	// ManagedFields keeps who wrote which fields.
	ManagedFields bool
}

// serverSets are the fields of metadata that differ on every server. The UIDs of
// owners are among them: garbage collection would delete an object that names the
// owner of another server.
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
func serverSets() []string {
	return []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "deletionTimestamp",
		"deletionGracePeriodSeconds", "ownerReferences",
	}
}

// clean removes from an object what is not kept.
func (f Form) clean(u *unstructured.Unstructured, r served.Resource) {
	for _, field := range serverSets() {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	for _, path := range foreign(u, r) {
		unstructured.RemoveNestedField(u.Object, path...)
		removeEmpty(u, path[:len(path)-1])
	}
	if !f.ManagedFields {
		unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	}
	if r.Status && !f.keepsStatus(r) {
		delete(u.Object, "status")
	}
}

// foreign are further fields with UIDs of this server: a Job selects its pods by its own
// UID, and a volume notes that of its claim.
// https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-labels
func foreign(u *unstructured.Unstructured, r served.Resource) [][]string {
	switch {
	case r.Group == "" && r.Kind == "PersistentVolume":
		return [][]string{{"spec", "claimRef", "uid"}, {"spec", "claimRef", "resourceVersion"}}
	case r.Group == "batch" && r.Kind == "Job":
		if manual, _, _ := unstructured.NestedBool(u.Object, "spec", "manualSelector"); manual {
			return nil
		}
		all := [][]string{{"spec", "selector"}}
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
			all = append(all, []string{"metadata", labels, label}, []string{"spec", "template", "metadata", labels, label})
		}
		return all
	}
	return nil
}

const labels = "labels"

// removeEmpty removes labels that were all removed.
func removeEmpty(u *unstructured.Unstructured, path []string) {
	if m, is, _ := unstructured.NestedMap(u.Object, path...); is && len(m) == 0 && path[len(path)-1] == labels {
		unstructured.RemoveNestedField(u.Object, path...)
	}
}

// restore gives an object the fields of another one that clean removed, where it has
// what they are in.
func restore(u, from *unstructured.Unstructured, r served.Resource) {
	for _, path := range foreign(u, r) {
		value, is, _ := unstructured.NestedFieldCopy(from.Object, path...)
		parent := path[:len(path)-1]
		_, has, _ := unstructured.NestedMap(u.Object, parent...)
		if is && (has || parent[len(parent)-1] == labels) {
			_ = unstructured.SetNestedField(u.Object, value, path...) // an object of another form is refused by the server
		}
	}
}

// keepsStatus tells whether the status of a resource is kept. A field of this name
// that is no sub-resource is like any other.
func (f Form) keepsStatus(r served.Resource) bool { return f.Status && r.Status && !ownStatus(r) }

// ownStatus tells whether the status of a kind says what this one server has done.
func ownStatus(r served.Resource) bool {
	switch r.Group {
	case crdGroup, serviceGroup, admissionGroup, flowGroup:
		return true
	case "":
		return r.Kind == "Namespace" || r.Kind == "ResourceQuota"
	}
	return false
}

const flowGroup = "flowcontrol.apiserver.k8s.io"

// selfMade tells whether every server makes the object by itself, and nobody has
// written to it since.
func selfMade(u *unstructured.Unstructured, r served.Resource) bool {
	switch r.Group {
	case serviceGroup:
		_, is := u.GetLabels()["kube-aggregator.kubernetes.io/automanaged"]
		return is
	case rbacGroup:
		_, is := u.GetLabels()["kubernetes.io/bootstrapping"]
		return (is || inSystem(u, published+"-reader")) && writers(u) <= 1
	case flowGroup: // with "true", the server takes back what others write
		return u.GetAnnotations()["apf.kubernetes.io/autoupdate-spec"] == "true"
	case "":
		// Both have certificates of this server.
		return r.Kind == "ConfigMap" && (u.GetName() == "kube-root-ca.crt" || inSystem(u, published))
	}
	return false
}

// published is what servers behind this one need to know of it; a Role to read it has
// a name that is longer.
const published = "extension-apiserver-authentication"

func inSystem(u *unstructured.Unstructured, name string) bool {
	return u.GetNamespace() == metav1.NamespaceSystem && u.GetName() == name
}

// writers counts who wrote fields of the object.
func writers(u *unstructured.Unstructured) int {
	names := map[string]bool{}
	for _, f := range u.GetManagedFields() {
		names[f.Manager] = true
	}
	return len(names)
}
