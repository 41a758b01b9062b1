// Package planetest runs a Kubernetes control plane inside go test:
//
//	func TestReconciler(t *testing.T) {
//		t.Parallel()
//		plane := planetest.Start(t, planetest.WithCRDs(os.DirFS("config/crd")))
//		manager, err := ctrl.NewManager(plane.Config(), ctrl.Options{})
//		...
//	}
//
// A plane is a server in the process of the test. It keeps its objects in
// memory, and clients call it directly: there is no port, no TLS and no file
// unless [Options] ask for them. It stops with its test, and fails it
// when a goroutine of the plane is left. Planes share nothing that can be
// changed, so tests with planes of their own run in parallel.
//
// Without other parts, a plane has those of [Defaults]. It deletes namespaces
// and collects garbage, which a plane without controllers does not; it runs no
// pods.
//
// Clients: [Plane.Config] for controller-runtime and everything else that takes
// a rest.Config, [Plane.Client], [Plane.Dynamic], [Plane.Discovery],
// [Plane.RESTMapper].
//
// Views of a plane, which are planes themselves: [Plane.As] acts as another user,
// [Plane.In] works in one namespace, [Plane.Within] waits longer or shorter.
//
// What tests do with it: [Plane.Apply] YAML, [Plane.WaitFor] a condition of an object,
// wait with [Plane.Eventually] and [Plane.Consistently], which check again when
// something in the plane changes, wait with [Plane.Seen] until a cache has your writes,
// and compare the content of the plane with [Plane.Snapshot] and [Plane.Golden].
//
// Tests of CRDs: [CRD], whose [Definition] has tables of objects, updates and
// migrations; [Convert] converts with a function. [WithWebhooks] runs a
// project's admission webhooks without certificates.
//
// Tests of a package share a plane with [Main] and [Plane.Namespace].
package planetest
