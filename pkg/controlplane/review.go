package controlplane

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsReview tells whether a resource is a question about permissions and users,
// which is answered and not stored. Policies and webhooks do not see such objects:
// one that denied them would lock everybody out. kube-apiserver does the same:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/kubeapiserver/admission/exclusion/resources.go
func IsReview(r schema.GroupResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return slices.Contains([]string{"selfsubjectreviews", "tokenreviews"}, r.Resource)
	case "authorization.k8s.io":
		return slices.Contains([]string{
			"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
		}, r.Resource)
	case "policy.sailplane.dev":
		return r.Resource == "createreviews"
	}
	return false
}
