// Package core has the resources of the core group (v1) that a control plane
// without nodes needs, one part each:
//
//   - [Namespaces]: namespaces, with the admission that keeps objects out of
//     those that are missing or terminating
//   - [ConfigMaps]
//   - [Secrets]
//   - [Events], which go away by themselves after an hour
//   - [ServiceAccounts]
//   - [ResourceQuotas] and [LimitRanges]
//   - [Services], without a service network: nothing is allocated
//   - [Endpoints], which are deprecated
//
// They take the published types of k8s.io/api/core/v1 and behave as
// kube-apiserver's do: defaults, validation and its messages, immutability,
// field selectors, and what kubectl get prints. A plane that lists two of them
// serves two; the core group itself is not a part.
package core
