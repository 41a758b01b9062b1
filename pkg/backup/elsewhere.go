package backup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// together are the entries of a storage with those of parts that others have, in the order of their keys.
func together(ctx context.Context, own transfer.Entries, parts []controlplane.Elsewhere) transfer.Entries {
	slices.SortFunc(parts, func(a, b controlplane.Elsewhere) int { return cmp.Compare(a.Root, b.Root) })
	return func(yield func(transfer.Entry, error) bool) {
		var last controlplane.Elsewhere // that was given
		left := parts
		for e, err := range own {
			key := string(e.Key)
			for err == nil && len(left) > 0 && left[0].Root <= key {
				last, left = left[0], left[1:]
				if !give(ctx, last, yield) {
					return
				}
			}
			if err == nil && last.Root != "" && (strings.HasPrefix(key, last.Root) || key == last.Key) {
				continue // a copy that was not completed, or is not deleted yet
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		for _, part := range left {
			if !give(ctx, part, yield) {
				return
			}
		}
	}
}

// give yields the entries of a part, and returns false if no more are wanted.
func give(ctx context.Context, part controlplane.Elsewhere, yield func(transfer.Entry, error) bool) bool {
	for e, err := range transfer.Range(ctx, part.Client, part.Root, part.Revision) {
		if err != nil {
			yield(e, fmt.Errorf("%s cannot be read: %w: take another backup when it can", part.Name, err))
			return false
		}
		if !yield(e, nil) {
			return false
		}
	}
	return yield(transfer.Entry{Key: []byte(part.Key), Value: part.Value}, nil)
}
