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
// The life of a server: Build checks the parts and does no I/O. Run binds the
// listener (1), opens the storage (2), builds the plane (3), serves (4), starts
// informers and post-start hooks (5), does the parts' preparations in order (6),
// waits for caches (7) and signals Ready (8). When its context ends it drains
// requests and ends watches (9), closes connections (10), ends the plane's work
// and waits for it (11), and stops the storage (12).
package controlplane
