package insight

import "time"

// Report is how a server is. What is not known, and lists without entries,
// are left out.
type Report struct {
	Server Server `json:"server"`
	// Planes begin with the root plane; the others follow by name.
	Planes []Plane `json:"planes"`
	Served Served  `json:"served"`
	// Resources are those with objects, in all planes with a feed; that with the most
	// bytes first.
	Resources []Resource `json:"resources,omitempty"`
	Storage   Storage    `json:"storage"`
	// Servers are those on the storage, by address, where it may have several.
	Servers []Peer `json:"servers,omitempty"`
	// Aggregated are the other API servers that planes hand requests to.
	Aggregated []Aggregated `json:"aggregated,omitempty"`
	// Caches are the watch caches in use, of all planes; that with the most objects first.
	Caches []Cache `json:"caches,omitempty"`
	// Total counts since the start, and Recent since five minutes at most.
	Total  Users `json:"total"`
	Recent Users `json:"recent"`
	// Watches are those that are open, of all users.
	Watches int `json:"watches"`
	// Slow are the last requests that took SlowSeconds or longer; the latest first.
	SlowSeconds float64       `json:"slowSeconds"`
	Slow        []SlowRequest `json:"slow,omitempty"`
	// Levels are the priority levels of the root plane, by name; none without API
	// Priority and Fairness.
	Levels []Level `json:"levels,omitempty"`
}

// Server is the process and the server in it.
type Server struct {
	Name       string `json:"name"`
	Version    string `json:"version"`    // of the library, if the program was built with one
	Kubernetes string `json:"kubernetes"` // such as v1.37.2
	Go         string `json:"go"`
	// Started is when the server was started.
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptimeSeconds"`
	Ready         bool      `json:"ready"`
	// Failed are the checks of /readyz that fail.
	Failed []Check `json:"failed,omitempty"`
	// MemoryBytes is what the process has from the operating system for Go, and
	// LiveBytes what objects in use took at the last garbage collection.
	MemoryBytes uint64 `json:"memoryBytes"`
	LiveBytes   uint64 `json:"liveBytes"`
	Goroutines  int    `json:"goroutines"`
}

// Check is a check that fails, and why.
type Check struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Plane is a plane of the server.
type Plane struct {
	// Name is empty for the root plane.
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Counted tells whether the objects are: by the plane's feed, if it has one.
	Counted bool  `json:"counted"`
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// Served is what the root plane serves, by discovery. Sub-resources do not count, and
// a resource in several versions counts once.
type Served struct {
	Groups    int `json:"groups"`
	Resources int `json:"resources"`
}

// Resource is what is stored of a resource.
type Resource struct {
	// Resource is its name as kubectl has it: deployments.apps.
	Resource string `json:"resource"`
	Objects  int    `json:"objects"`
	// Bytes are those of keys and values as they are stored, without history.
	Bytes int64 `json:"bytes"`
}

// Storage is the state of the storage.
type Storage struct {
	// Engine is what kind of storage it is: "etcd", "sqlite", "memory".
	Engine string `json:"engine"`
	// Revision is that of the last write; 0 if the storage does not answer.
	Revision int64 `json:"revision"`
	// FileBytes is what it takes on disk or in memory, and HistoryBytes is how much of
	// that was replaced or deleted.
	FileBytes    *int64 `json:"fileBytes,omitempty"`
	HistoryBytes *int64 `json:"historyBytes,omitempty"`
	// Compacted is when history was last dropped, or when the storage was started.
	Compacted time.Time `json:"compacted,omitzero"`
	// Backup is when the last backup was taken.
	Backup time.Time `json:"backup,omitzero"`
	// LagRevisions is how many revisions the slowest watch is behind.
	LagRevisions *int64 `json:"lagRevisions,omitempty"`
}

// Peer is a server on the storage.
type Peer struct {
	// ID tells it from others. The Leases of work that it does name it.
	ID      string `json:"id"`
	Address string `json:"address,omitempty"`
	// Self tells that it is the server that the report is of.
	Self bool `json:"self,omitempty"`
	// Renewed is when it was last there. It says so every ten seconds.
	Renewed time.Time `json:"renewed"`
	// LagRevisions is how many revisions its slowest watch of the storage was behind then.
	LagRevisions *int64 `json:"lagRevisions,omitempty"`
	// Work is the work that only one server does at a time, and that this one does.
	Work []string `json:"work,omitempty"`
}

// Aggregated is another API server.
type Aggregated struct {
	Plane string `json:"plane,omitempty"` // empty for the root plane
	// Name is the namespace and Service of its APIServices, Address where it is.
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// Groups are the group versions that it answers.
	Groups []string `json:"groups,omitempty"`
	// Available tells whether it can be used, for all of Groups; Problem why not.
	Available bool   `json:"available"`
	Problem   string `json:"problem,omitempty"`
	// Since is when it became usable, or unusable.
	Since time.Time `json:"since"`
	// LatencySeconds is how long its last check took.
	LatencySeconds float64 `json:"latencySeconds"`
	// Conflicts are the group versions that others have, too, and who answers.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Cache is what the watch caches of a resource keep in memory.
type Cache struct {
	Resource string `json:"resource"`
	// Caches is how many there are: one in each plane, and for each version of a custom
	// resource.
	Caches int `json:"caches"`
	// Objects is how many all of them have.
	Objects int `json:"objects"`
}

// Users are who asked most.
type Users struct {
	Seconds float64 `json:"seconds"` // how long it was counted
	// Users are the ten with the most requests.
	Users []User `json:"users,omitempty"`
	// Others are the requests of all others. Only the users with the most requests are
	// told apart: with more than 256 of them, who asks seldom is counted here.
	Others User `json:"others"`
}

// User is what a user of a plane asked for.
type User struct {
	Plane string `json:"plane,omitempty"` // empty for the root plane
	User  string `json:"user,omitempty"`  // its first 200 bytes
	// Requests have been answered; watches count when they begin.
	Requests int64 `json:"requests"`
	// Seconds are what their answers took in all, without those of watches.
	Seconds float64 `json:"seconds"`
	// Errors are answers with a code from 400 on.
	Errors int64 `json:"errors"`
	// Watches are those that are open now.
	Watches int `json:"watches"`
}

// SlowRequest is a request that took long.
type SlowRequest struct {
	When    time.Time `json:"when"` // it was received
	Plane   string    `json:"plane,omitempty"`
	User    string    `json:"user"`
	Verb    string    `json:"verb"`
	Path    string    `json:"path"` // its first 200 bytes
	Code    int       `json:"code"`
	Seconds float64   `json:"seconds"`
}

// Level is a priority level. Requests are counted since the start.
type Level struct {
	Name      string `json:"name"`
	Executing int64  `json:"executing"`
	Waiting   int64  `json:"waiting"`
	// Rejected are requests that were refused at once, or waited too long.
	Rejected int64 `json:"rejected"`
}
