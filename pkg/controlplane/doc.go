// Package controlplane assembles Kubernetes API servers from parts.
//
//	err := controlplane.New("minimal").
//		Listen("127.0.0.1:6443").
//		Storage(etcd.Embedded{Dir: "data"}).
//		With(authn.Admin{Kubeconfig: "admin.kubeconfig"}, core.Namespaces{}).
//		Run(ctx)
//
// A Builder collects Parts and makes a Server. A Part declares what it brings
// to a Plan: API groups, authenticators, admission, middleware, servers below
// and above the groups, work. A Server has a listener, a storage and a root
// Plane: one complete API, built from the plan.
//
// The life of a server: Build checks the parts, and the files that must be right
// before anything starts. Run binds the listener (1), makes its TLS identity (2),
// opens the storage (3), builds the plane (4), serves (5), starts informers and
// post-start hooks (6), does the parts' preparations in order (7), waits for caches
// (8) and signals Ready (9). When its context ends it drains requests and ends
// watches (10), closes connections (11), waits for the plane's work (12), and stops
// the storage (13).
package controlplane
