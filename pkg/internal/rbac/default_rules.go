package rbac

import rbacv1 "k8s.io/api/rbac/v1"

// rule is a rule that is written as a sentence: on("get").groups("apps").resources("deployments").
type rule rbacv1.PolicyRule

func on(verbs ...string) rule { return rule{Verbs: verbs} }

func (r rule) groups(groups ...string) rule {
	r.APIGroups = groups
	return r
}

func (r rule) resources(resources ...string) rule {
	r.Resources = resources
	return r
}

func (r rule) names(names ...string) rule {
	r.ResourceNames = names
	return r
}

func (r rule) urls(urls ...string) rule {
	r.NonResourceURLs = urls
	return r
}

// read, write and manage are for objects somebody may see, change, or both. Each
// call returns a new slice: callers of Defaults may change it.
func read() rule { return on("get", "list", "watch") }

func write() rule { return on("create", "delete", "deletecollection", "patch", "update") }

func manage() rule {
	return on("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
}

// adminRules are what the administrator of a namespace may do beyond its editor:
// let others in.
func adminRules() []rule {
	return []rule{
		on("create").groups("authorization.k8s.io").resources("localsubjectaccessreviews"),
		manage().groups(rbacv1.GroupName).resources("rolebindings", "roles"),
	}
}

// editRules are what the editor of a namespace may do and its viewer may not.
// Status, quotas and limits belong to the system. Secrets are for editors only
// as reading one may be a way to become somebody else. Endpoints and their
// slices can lead traffic elsewhere (CVE-2021-25740).
func editRules() []rule {
	return []rule{
		read().groups("").resources("pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets"),
		on("impersonate").groups("").resources("serviceaccounts"),
		write().groups("").resources("pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"),
		on("create").groups("").resources("pods/eviction"),
		write().groups("").resources(
			"configmaps", "persistentvolumeclaims", "replicationcontrollers", "replicationcontrollers/scale",
			"secrets", "serviceaccounts", "services",
		),
		on("create").groups("").resources("serviceaccounts/token"),
		write().groups("", "events.k8s.io").resources("events"),
		write().groups("apps").resources(
			"daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale",
		),
		write().groups("autoscaling").resources("horizontalpodautoscalers"),
		write().groups("batch").resources("cronjobs", "jobs"),
		write().groups("policy").resources("poddisruptionbudgets"),
		write().groups("networking.k8s.io").resources("ingresses", "networkpolicies"),
		manage().groups("coordination.k8s.io").resources("leases"),
		write().groups("resource.k8s.io").resources("resourceclaims", "resourceclaimtemplates"),
	}
}

// viewRules are what anybody let into a namespace may see: nothing that gives them
// more rights, so neither secrets nor roles. Seeing namespaces within a namespace
// means seeing that one.
func viewRules() []rule {
	return []rule{
		read().groups("").resources(
			"configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods",
			"replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services", "services/status",
		),
		read().groups("").resources(
			"limitranges", "namespaces/status", "pods/log", "pods/status", "replicationcontrollers/status",
			"resourcequotas", "resourcequotas/status",
		),
		read().groups("").resources("namespaces"),
		read().groups("", "events.k8s.io").resources("events"),
		read().groups("discovery.k8s.io").resources("endpointslices"),
		read().groups("apps").resources(
			"controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
		),
		read().groups("autoscaling").resources("horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		read().groups("batch").resources("cronjobs", "cronjobs/status", "jobs", "jobs/status"),
		read().groups("policy").resources("poddisruptionbudgets", "poddisruptionbudgets/status"),
		read().groups("networking.k8s.io").resources("ingresses", "ingresses/status", "networkpolicies"),
		read().groups("resource.k8s.io").resources("resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
	}
}
