// Package fairness keeps clients from starving each other.
//
// [PriorityAndFairness] is API Priority and Fairness as in Kubernetes: requests
// beyond what the server takes at a time wait in queues, by rules that are API
// objects. [Limits] are fixed numbers for every user and every namespace: requests per
// second and at once, bytes written per second, the size of objects, their number and
// what they take together, open watches. [Defaults] are those of sailplane serve.
// [FollowLimits] has them change while a plane runs. A plane may have the first and one of the others.
package fairness
