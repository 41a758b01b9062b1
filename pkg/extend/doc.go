// Package extend is about API servers that extend another one, their host, which hands
// requests to them:
//
//   - [CreateReviews], at the host, answers whether somebody may create an object that another
//     server stores: one question about the namespace, the right and the quotas
//   - [Host], at the other server, takes from the host who somebody is, what they may do,
//     which namespaces there are, and their quotas
package extend
