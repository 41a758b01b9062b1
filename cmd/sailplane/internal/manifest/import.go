package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// Conflict is what happens to an object that is there and differs.
type Conflict string

// What may happen to an object that differs.
const (
	Skip    Conflict = "skip"    // it stays as it is
	Replace Conflict = "replace" // it becomes as the document says
	Fail    Conflict = "fail"    // it stays, and the import fails in the end
)

// Import applies objects to a server.
type Import struct {
	Objects dynamic.Interface
	Catalog *served.Catalog
	// Form says what of a document is applied.
	Form       Form
	DryRun     bool
	OnConflict Conflict
	// Workers is how many objects are applied at the same time.
	Workers int
	// Report is where a line for each object goes.
	Report io.Writer

	mu sync.Mutex
	// pending are the namespaces and kinds that a dry run would have made.
	pendingNamespaces map[string]bool
	pendingKinds      map[schema.GroupKind]bool
}

// batch is how many objects are applied before their lines are written, in order.
const batch = 100

// Run applies the objects of a file, a directory, or "-", standard input. What an
// earlier import did is found unchanged: that is how one that was interrupted goes on.
func (i *Import) Run(ctx context.Context, path string, stdin io.Reader) (err error) {
	begun := time.Now()
	s, err := open(path, stdin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	i.pendingNamespaces, i.pendingKinds = map[string]bool{}, map[schema.GroupKind]bool{}
	counted := map[outcome]int{}
	for rest := s.entries; len(rest) > 0; {
		n := 1
		for n < min(batch, len(rest)) && place(rest[n].kind.GroupKind()) == place(rest[0].kind.GroupKind()) {
			n++
		}
		results := make([]result, n)
		workqueue.ParallelizeUntil(ctx, i.Workers, n, func(at int) { results[at] = i.entry(ctx, &rest[at]) })
		for at, r := range results {
			if r.outcome == unfinished {
				continue // the import was interrupted
			}
			counted[r.outcome]++
			fmt.Fprintf(i.Report, "%s: %s\n", &rest[at], r.text(i.DryRun))
		}
		if ctx.Err() != nil {
			return errors.New("interrupted: to continue, run the import again")
		}
		rest = rest[n:]
	}
	return i.summary(counted, len(s.entries), time.Since(begun))
}

// summary writes the counts. It is an error if something failed.
func (i *Import) summary(counted map[outcome]int, all int, took time.Duration) error {
	fmt.Fprintf(i.Report, "%d objects: ", all)
	for _, o := range []outcome{created, unchanged, replaced, skipped, differs, failed} {
		if o == differs && i.OnConflict != Fail {
			continue
		}
		separator := ", "
		if o == created {
			separator = ""
		}
		n := counted[o]
		if o == created {
			n += counted[unchecked]
		}
		fmt.Fprintf(i.Report, "%s%d %s", separator, n, o.word(i.DryRun))
	}
	fmt.Fprintf(i.Report, " in %s\n", took.Round(time.Millisecond))
	if n := counted[failed] + counted[differs]; n > 0 {
		return fmt.Errorf("%d of %d objects failed: the lines above say why. Once that is mended, run the import again", n, all)
	}
	return nil
}

// outcome is what became of an object.
type outcome int

const (
	unfinished outcome = iota
	created
	unchanged
	replaced
	skipped
	differs
	failed
	unchecked // in a dry run: it would be created, once what it needs is there
)

// word is the outcome in a summary.
func (o outcome) word(dryRun bool) string {
	words := map[outcome]string{
		created: "created", unchanged: "unchanged", replaced: "replaced", skipped: "skipped", differs: "differ", failed: "failed",
	}
	if dryRun && (o == created || o == replaced) {
		return "would be " + words[o]
	}
	return words[o]
}

// result is the outcome of an object, with what is to say about it.
type result struct {
	outcome outcome
	paths   []string // where it differs
	detail  string
}

func failure(err error) result { return result{outcome: failed, detail: err.Error()} }

// text is the rest of the object's line.
func (r result) text(dryRun bool) string {
	switch r.outcome {
	case skipped:
		return fmt.Sprintf("skipped (differs: %s)", listed(r.paths))
	case differs:
		return fmt.Sprintf("failed: differs: %s", listed(r.paths))
	case failed:
		return "failed: " + r.detail
	case unchecked:
		return "would be created; not checked: " + r.detail
	}
	return r.outcome.word(dryRun)
}
