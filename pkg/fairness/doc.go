// Package fairness keeps clients from taking a server away from each other.
//
// [PriorityAndFairness] is API Priority and Fairness as in Kubernetes: requests
// that would be too many at a time wait in queues, by rules that are objects of
// the API. [Limits] are fixed numbers for every user: requests per second and
// at once, the size of objects, their number, open watches. Both may be picked.
package fairness
