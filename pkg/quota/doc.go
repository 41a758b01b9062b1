// Package quota enforces ResourceQuotas and LimitRanges:
//
//   - [ResourceQuotas] refuses what is over a limit, and keeps status.used true
//   - [LimitRanges] gives pods defaults, and refuses pods and claims out of bounds
//
// count/RESOURCE.GROUP limits the number of objects of any resource, custom and
// typed ones included. The older names are known too: configmaps, secrets,
// services, services.loadbalancers, services.nodeports, persistentvolumeclaims,
// requests.storage, replicationcontrollers, resourcequotas and pods.
// sailplane.dev/stored-bytes limits what the objects take in the storage. Requests and
// limits of containers (requests.cpu, limits.memory and the like) and quotas with
// scopes are not enforced: nothing runs here.
package quota
