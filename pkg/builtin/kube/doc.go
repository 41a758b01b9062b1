// Package kube serves the resources of Kubernetes that have no part of their
// own in this library, each in one line: pods, workloads, volumes, networking
// and the rest of what k8s.io/api publishes in a stable version.
//
//	kube.Apps()                                            // everything in apps/v1
//	kube.Apps("deployments")                               // one resource of it
//	kube.Resources("pods", "deployments.apps", "jobs.batch")
//	kube.Groups("apps", "batch", "networking.k8s.io")
//	kube.All()
//
// A program links what it names: with [Apps] only apps/v1. [Resources],
// [Groups] and [All] find names while the program runs, so they link every group.
//
// # What is served
//
//	core/v1                          pods, podtemplates, replicationcontrollers, nodes, persistentvolumes, persistentvolumeclaims
//	apps/v1                          deployments, replicasets, statefulsets, daemonsets, controllerrevisions
//	autoscaling/v2                   horizontalpodautoscalers
//	batch/v1                         jobs, cronjobs
//	flowcontrol.apiserver.k8s.io/v1  flowschemas, prioritylevelconfigurations
//	networking.k8s.io/v1             ingresses, ingressclasses, networkpolicies, ipaddresses, servicecidrs
//	node.k8s.io/v1                   runtimeclasses
//	policy/v1                        poddisruptionbudgets
//	resource.k8s.io/v1               deviceclasses, devicetaintrules, resourceclaims, resourceclaimtemplates, resourceslices
//	scheduling.k8s.io/v1             priorityclasses
//	storage.k8s.io/v1                storageclasses, volumeattachments, volumeattributesclasses, csidrivers, csinodes,
//	                                 csistoragecapacities
//	storagemigration.k8s.io/v1       storageversionmigrations
//
// Scope, short names, categories, /status, /scale, metadata.generation, field
// selectors and the columns of kubectl get are those of Kubernetes 1.37. Objects
// are stored as protobuf. Nothing acts on them: no pod runs and no Deployment
// makes a ReplicaSet unless a controller of yours does it. A write to /status
// changes metadata of the same kinds as in Kubernetes.
//
// A pod may be bound to a node (pods/binding, and the old bindings) and evicted
// (pods/eviction). Where [Policy] is served too, an eviction asks the
// PodDisruptionBudget of the pod, and counts in its status, where a controller
// of yours writes how much it allows.
//
// Not served: autoscaling/v1 (a HorizontalPodAutoscaler has autoscaling/v2
// only), and the sub-resources that need a kubelet (pods/log, pods/exec,
// pods/ephemeralcontainers, pods/resize, nodes/proxy).
//
// # What is defaulted
//
// All documented defaults of the types above, those of pods and their
// containers, volumes and probes included. Not what Kubernetes leaves to
// admission plugins: the ServiceAccount, priority and tolerations of a pod, the
// default StorageClass and IngressClass. Nor: procMount, pod-level resources,
// maxUnavailable of a StatefulSet, spec.dataSourceRef of a claim.
//
// # What is dropped
//
// The fields that are new in Kubernetes 1.37 and belong to a feature that is off
// there by default, as kube-apiserver does: users of volumes, modes of emptyDir,
// options of bind mounts, the protocol and mode of probes, eviction responders, the
// health of volumes, and what devices may do in alpha. Stored values stay. Fields
// of older features that are off are kept.
//
// # What is validated
//
// Metadata, every rule that the published types declare (hack/validation
// generates them), and what controllers rely on: required fields and enumerations,
// selectors that match their template, numbers that must not be negative, and
// every field that Kubernetes keeps immutable. Not the contents of pods beyond
// containers, images, volumes and mounts; not affinity, security contexts,
// quantities, CEL expressions, cron syntax, or the details of volume sources.
// Objects that kube-apiserver refuses can therefore be created; one that it
// accepts and this package refuses is a bug.
package kube
