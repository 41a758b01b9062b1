// Command openapi writes the OpenAPI definitions of the API groups that
// Sailplane serves on published Go types.
//
// It runs openapi-gen, the published generator, at the version of kube-openapi
// that go.mod names, and keeps only the output that the served resources can
// reach: the whole of core/v1 is 17,000 lines, three resources of it are 400.
//
// Run it from anywhere in the module:
//
//	go run ./hack/openapi         # write the files
//	go run ./hack/openapi -check  # fail when a file is stale
//
// It needs nothing but the go command: modules come from the module cache, or
// through the module proxy the first time.
package main

import (
	"fmt"
	"strings"

	"github.com/sailplane-dev/sailplane/hack/internal/gotool"
)

// output is one generated file.
type output struct {
	// dir is the package's directory, from the root of the module.
	dir string
	// packages are the import paths whose types the file may hold. The first
	// output's are shared: every file may refer to them.
	packages []string
	// sets are the functions of the file.
	sets []set
}

// set is one generated function: the definitions that some types reach.
type set struct {
	function string
	doc      string
	// roots are types as "import/path.Type", or "import/path.*" for all of a package.
	roots []string
}

const fileName = "zz_generated.openapi.go"

// outputs returns the generated files. To serve one more published type, add a
// set; sets of one file may overlap.
func outputs() []output {
	return []output{
		{
			dir: "pkg/internal/openapi/meta",
			packages: []string{
				"k8s.io/api/autoscaling/v1",
				"k8s.io/apimachinery/pkg/api/resource",
				"k8s.io/apimachinery/pkg/apis/meta/v1",
				"k8s.io/apimachinery/pkg/runtime",
				"k8s.io/apimachinery/pkg/util/intstr",
				"k8s.io/apimachinery/pkg/version",
			},
			sets: []set{{
				function: "Definitions",
				doc: "Definitions are the types that any API group may refer to: meta/v1, runtime,\n" +
					"intstr, Quantity, version.Info and autoscaling/v1 Scale.",
				roots: []string{
					"k8s.io/api/autoscaling/v1.Scale",
					"k8s.io/apimachinery/pkg/api/resource.*",
					"k8s.io/apimachinery/pkg/apis/meta/v1.*",
					"k8s.io/apimachinery/pkg/runtime.*",
					"k8s.io/apimachinery/pkg/util/intstr.*",
					"k8s.io/apimachinery/pkg/version.*",
				},
			}},
		},
		{
			dir:      "pkg/builtin/core",
			packages: []string{"k8s.io/api/core/v1", "k8s.io/api/events/v1"},
			sets: []set{
				lists("namespace", "k8s.io/api/core/v1.Namespace"),
				lists("configMap", "k8s.io/api/core/v1.ConfigMap"),
				lists("secret", "k8s.io/api/core/v1.Secret"),
				lists("event", "k8s.io/api/core/v1.Event"),
				lists("newEvent", "k8s.io/api/events/v1.Event"),
				lists("serviceAccount", "k8s.io/api/core/v1.ServiceAccount"),
				lists("resourceQuota", "k8s.io/api/core/v1.ResourceQuota"),
				lists("limitRange", "k8s.io/api/core/v1.LimitRange"),
				lists("service", "k8s.io/api/core/v1.Service"),
				lists("endpoints", "k8s.io/api/core/v1.Endpoints"),
			},
		},
		builtin("coordination", lists("lease", "k8s.io/api/coordination/v1.Lease")),
		{
			dir:      "pkg/builtin/endpoints",
			packages: []string{"k8s.io/api/core/v1", "k8s.io/api/discovery/v1"},
			sets:     []set{lists("endpointSlice", "k8s.io/api/discovery/v1.EndpointSlice")},
		},
		builtin("certificates",
			lists("certificateSigningRequest", "k8s.io/api/certificates/v1.CertificateSigningRequest"),
			lists("clusterTrustBundle", "k8s.io/api/certificates/v1.ClusterTrustBundle"),
			lists("podCertificateRequest", "k8s.io/api/certificates/v1.PodCertificateRequest")),
		builtin("admissionregistration", kinds("admissionregistration", "k8s.io/api/admissionregistration/v1",
			"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration")),
		kube(),
		builtin("authentication", reviews("authentication", "TokenReview", "SelfSubjectReview")),
		builtin("authorization", reviews("authorization",
			"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview")),
		builtin("rbac", kinds("rbac", "k8s.io/api/rbac/v1", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")),
		{
			dir:      "pkg/serviceaccount",
			packages: []string{"k8s.io/api/authentication/v1"},
			sets:     []set{reviews("authentication", "TokenRequest")},
		},
	}
}

// builtin returns the output of a group that has a package of its own.
func builtin(group string, sets ...set) output {
	return output{dir: "pkg/builtin/" + group, packages: []string{"k8s.io/api/" + group + "/v1"}, sets: sets}
}

// kube returns the output of the resources that have no part of their own.
func kube() output {
	return output{
		dir: "pkg/builtin/kube",
		packages: []string{
			"k8s.io/api/apps/v1",
			"k8s.io/api/autoscaling/v2",
			"k8s.io/api/batch/v1",
			"k8s.io/api/core/v1",
			"k8s.io/api/flowcontrol/v1",
			"k8s.io/api/networking/v1",
			"k8s.io/api/node/v1",
			"k8s.io/api/scheduling/v1alpha3", // jobs use types of it
			"k8s.io/api/policy/v1",
			"k8s.io/api/resource/v1",
			"k8s.io/api/scheduling/v1",
			"k8s.io/api/storage/v1",
			"k8s.io/api/storagemigration/v1",
		},
		sets: []set{
			kinds("apps", "k8s.io/api/apps/v1", "ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
			kinds("autoscaling", "k8s.io/api/autoscaling/v2", "HorizontalPodAutoscaler"),
			kinds("batch", "k8s.io/api/batch/v1", "CronJob", "Job"),
			kinds("core", "k8s.io/api/core/v1",
				"Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController",
			).and("k8s.io/api/core/v1.Binding", "k8s.io/api/policy/v1.Eviction"),
			kinds("flowcontrol", "k8s.io/api/flowcontrol/v1", "FlowSchema", "PriorityLevelConfiguration"),
			kinds("networking", "k8s.io/api/networking/v1", "IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"),
			kinds("node", "k8s.io/api/node/v1", "RuntimeClass"),
			kinds("policy", "k8s.io/api/policy/v1", "PodDisruptionBudget"),
			kinds("resource", "k8s.io/api/resource/v1",
				"DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
			kinds("scheduling", "k8s.io/api/scheduling/v1", "PriorityClass"),
			kinds("storage", "k8s.io/api/storage/v1",
				"CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"),
			kinds("storageMigration", "k8s.io/api/storagemigration/v1", "StorageVersionMigration"),
		},
	}
}

// reviews returns the set of kinds whose objects are never listed.
func reviews(group string, kinds ...string) set {
	s := set{function: "definitions", doc: fmt.Sprintf("definitions are the definitions of %s.", strings.Join(kinds, ", "))}
	for _, kind := range kinds {
		s.roots = append(s.roots, "k8s.io/api/"+group+"/v1."+kind)
	}
	return s
}

// lists returns the set of a resource: its type and its list type.
func lists(name, root string) set {
	function := name + "Definitions"
	kind := root[strings.LastIndex(root, ".")+1:]
	return set{
		function: function,
		doc:      fmt.Sprintf("%s are the definitions of %s and %sList.", function, kind, kind),
		roots:    []string{root, root + "List"},
	}
}

// kinds returns the set of several resources of a group: their types and list
// types.
func kinds(name, pkg string, kinds ...string) set {
	function := name + "Definitions"
	s := set{function: function, doc: fmt.Sprintf("%s are the definitions of %s and their lists.", function, strings.Join(kinds, ", "))}
	for _, kind := range kinds {
		s.roots = append(s.roots, pkg+"."+kind, pkg+"."+kind+"List")
	}
	return s
}

// and adds types without lists: those of sub-resources.
func (s set) and(roots ...string) set {
	s.roots = append(s.roots, roots...)
	return s
}

func main() { gotool.Main("openapi", generate) }
