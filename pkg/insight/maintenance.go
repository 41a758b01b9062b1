package insight

import (
	"context"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/page"
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
	page.Page{
		Path: MaintenancePath, Does: "maintenance on request", Methods: []string{http.MethodPost},
		Misused: "maintenance is asked for with POST",
		Alone:   &page.Alone{Busy: "the storage is being maintained: it takes one request at a time", Retry: 1},
		Serve:   maintain,
	}.Declare(p.Root())
	return nil
}

// maintain does what the query says.
func maintain(w http.ResponseWriter, r *http.Request, root *controlplane.Plane) error {
	server := root.Server()
	do := map[string]func(context.Context) error{
		"compact": server.CompactStorage, "defragment": server.DefragmentStorage,
	}[r.URL.Query().Get("do")]
	if do == nil {
		return apierrors.NewBadRequest("the query says do=compact, or do=defragment")
	}
	answer := Maintained{Before: storage(r.Context(), server)}
	if err := do(r.Context()); err != nil {
		return err
	}
	answer.After = storage(r.Context(), server)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error says that the client went away
	return nil
}
