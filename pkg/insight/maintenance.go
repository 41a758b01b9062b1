package insight

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// MaintenancePath is where the root plane of a server takes requests for the maintenance of its storage:
// POST, with what to do in the query, do=compact or do=defragment. Who may post to this path may do both.
const MaintenancePath = "/debug/storage"

// Maintenance lets an operator maintain the storage of a running server, one request at a time.
type Maintenance struct{}

// Maintained is what the storage took before something was done, and after it.
type Maintained struct {
	Before Storage `json:"before"`
	After  Storage `json:"after"`
}

// PartName implements the name errors use.
func (Maintenance) PartName() string { return "insight.Maintenance" }

// Install implements controlplane.Part.
func (Maintenance) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the path.
func (Maintenance) InstallServer(p *controlplane.ServerPlan) error {
	root, m := p.Root(), &maintenance{}
	root.Handle(MaintenancePath, m)
	root.LongRunning(func(r *http.Request, _ *apirequest.RequestInfo) bool { return r.URL.Path == MaintenancePath })
	root.Work(controlplane.Work{Name: "maintenance on request", Run: func(_ context.Context, plane *controlplane.Plane) error {
		m.server.Store(plane.Server())
		return nil
	}})
	return nil
}

type maintenance struct {
	server atomic.Pointer[controlplane.Server] // nil before it works
	busy   atomic.Bool
}

// ServeHTTP implements http.Handler.
func (m *maintenance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := m.server.Load()
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "",
			"maintenance is asked for with POST", 0, true))
		return
	case server == nil:
		w.Header().Set("Retry-After", "1")
		refuse(w, r, apierrors.NewServiceUnavailable("the server is starting"))
		return
	}
	do := map[string]func(context.Context) error{
		"compact": server.CompactStorage, "defragment": server.DefragmentStorage,
	}[r.URL.Query().Get("do")]
	if do == nil {
		refuse(w, r, apierrors.NewBadRequest("the query says do=compact, or do=defragment"))
		return
	}
	if !m.busy.CompareAndSwap(false, true) {
		w.Header().Set("Retry-After", "1")
		refuse(w, r, apierrors.NewTooManyRequests("the storage is being maintained: it takes one request at a time", 1))
		return
	}
	defer m.busy.Store(false)
	answer := Maintained{Before: storage(r.Context(), server)}
	if err := do(r.Context()); err != nil {
		refuse(w, r, apierrors.NewInternalError(err))
		return
	}
	answer.After = storage(r.Context(), server)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error says that the client went away
}
