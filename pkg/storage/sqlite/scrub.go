package sqlite

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

const (
	// scrubRows are read each scrubEvery; scrubAgain after the end it begins
	// again.
	scrubRows  = 100
	scrubEvery = time.Second
	scrubAgain = time.Hour
)

const scrubbed = `SELECT ` + columns + ` FROM kine AS k LEFT JOIN sailplane_row AS s ON s.id = k.id
	WHERE k.id > ? ORDER BY k.id LIMIT ?`

// scrub reads all rows, slowly, again and again, and logs which are damaged.
func scrub(ctx context.Context, l *log) {
	wait, after := scrubEvery, int64(0)
	known := map[int64]bool{} // rows that were logged before
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.stop:
			timer.Stop()
			return
		}
		last, n, err := l.scrub(ctx, after, known)
		if err != nil {
			klog.ErrorS(err, "Rows could not be read", "file", l.path, "after", after)
		}
		wait, after = scrubEvery, last
		if err != nil || n < scrubRows {
			wait, after = scrubAgain, 0
		}
	}
}

func (l *log) scrub(ctx context.Context, after int64, known map[int64]bool) (last int64, n int, err error) {
	rows, err := l.db.QueryContext(ctx, scrubbed, after, scrubRows)
	err = each(rows, err, func() error {
		var r row
		if err := rows.Scan(r.fields()...); err != nil {
			return err
		}
		last = r.id
		n++
		if cause := revision.DamageOf(r.keyValue().Value); cause != nil && !known[r.id] {
			known[r.id] = true
			klog.ErrorS(cause, "A row is damaged: restore its object, or delete it", "file", l.path, "key", r.name)
		}
		return nil
	})
	return last, n, err
}
