package manifest

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

const (
	rbacGroup      = "rbac.authorization.k8s.io"
	admissionGroup = "admissionregistration.k8s.io"
	crdGroup       = "apiextensions.k8s.io"
	crdKind        = "CustomResourceDefinition"
	serviceGroup   = "apiregistration.k8s.io"
)

// The places of kinds: what others need is first, and what could refuse others
// is last.
const (
	placeNamespaces = iota
	placeDefinitions
	placeBuiltIn = 10 // of a group of Kubernetes
	placeCustom  = 11
)

// place is where a kind is in the order of an export and of an import.
func place(k schema.GroupKind) int {
	switch k {
	case schema.GroupKind{Kind: "Namespace"}:
		return placeNamespaces
	case schema.GroupKind{Group: crdGroup, Kind: crdKind}:
		return placeDefinitions
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return 2
	case schema.GroupKind{Kind: "Secret"}:
		return 3
	case schema.GroupKind{Kind: "ConfigMap"}:
		return 4
	case schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		return 5
	case schema.GroupKind{Group: rbacGroup, Kind: "Role"}:
		return 6
	case schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		return 7
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"}:
		return 8
	case schema.GroupKind{Kind: "LimitRange"}:
		return 12
	case schema.GroupKind{Kind: "ResourceQuota"}:
		return 13
	}
	switch {
	case k.Group == serviceGroup:
		return 17
	case k.Group == admissionGroup && strings.HasSuffix(k.Kind, "Policy"):
		return 14
	case k.Group == admissionGroup && strings.HasSuffix(k.Kind, "PolicyBinding"):
		return 15
	case k.Group == admissionGroup:
		return 16
	case strings.HasSuffix(k.Group, ".k8s.io") || !strings.Contains(k.Group, "."):
		return placeBuiltIn
	}
	return placeCustom
}

// inOrder sorts resources by place and name.
func inOrder(all []served.Resource) {
	slices.SortFunc(all, func(a, b served.Resource) int {
		return cmp.Or(cmp.Compare(place(kindOf(a)), place(kindOf(b))), cmp.Compare(a.Name(), b.Name()))
	})
}

func kindOf(r served.Resource) schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}
