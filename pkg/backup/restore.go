package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// Options say how a backup is restored.
type Options struct {
	// EncryptionConfigFile is that of the servers which will use the storage
	// (encryption.AtRest.ConfigFile). With it, every value is decrypted before anything is written.
	// Empty: nothing in the backup may be encrypted.
	EncryptionConfigFile string
	// Overwrite has what the storage has below the backup's prefix replaced. False: it has to be
	// empty, or be what an interrupted restore left.
	Overwrite bool
	// AcceptNewRevisions restores to a storage whose revisions cannot be raised above all that clients
	// have seen: an etcd cluster other than that of the backup. All clients have to be restarted then.
	AcceptNewRevisions bool
	// Private is where the backup's private files are written. The zero value: nowhere.
	Private Private
	// Progress is called often, with the number of the pass over the backup, and how many keys it has
	// gone through: pass 0 checks the backup, 1 writes, and 2 compares. Nil: nobody asks.
	Progress func(pass int, keys int64)
}

// Result is what a restore did.
type Result struct {
	Info Info
	// Written and Deleted are the changes of this run, and Expired the keys of the backup that have
	// expired since it was taken.
	Written, Deleted, Expired int64
	// Revision is the newest of the storage, and its history begins there. Continuous tells
	// whether it is larger than all that clients have seen. False only with AcceptNewRevisions.
	Revision   int64
	Continuous bool
}

// writesPerSecond is how many revisions a server makes in a second at most: what clients have
// seen since a backup was taken.
const writesPerSecond = 10_000

// Restore makes a storage have exactly the keys and values of a backup. No server may be running on it.
//
// The backup is read to its end first, and its checksum compared, and what is encrypted is decrypted.
// Nothing is written unless that succeeds. An interrupted restore leaves a storage that no server
// starts on, and the next one with the same backup continues it. Restore ends when it has read both
// and found no difference.
func Restore(ctx context.Context, from io.ReadSeeker, to controlplane.Storage, o Options) (r Result, err error) {
	info, files, err := examine(ctx, from, o)
	if err != nil {
		return r, err
	}
	r.Info = info
	report, err := transfer.Into(ctx, to, transfer.From{
		Name:     fmt.Sprintf("the backup of %s with checksum %.12s", r.Info.Taken.Format(time.RFC3339), r.Info.Checksum),
		Format:   r.Info.Stored,
		Revision: Seen(r.Info.Revision, r.Info.Taken), Cluster: r.Info.Cluster, Past: true,
		Entries: func(ctx context.Context) (transfer.Entries, error) {
			if _, err := from.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
			file, err := newReader(from)
			if err != nil {
				return nil, err
			}
			return storedIn(ctx, file), nil
		},
	}, transfer.Options{
		Prefix: r.Info.Prefix, Overwrite: o.Overwrite, AcceptNewRevisions: o.AcceptNewRevisions, Progress: o.Progress,
	})
	if err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	if err := o.Private.write(files); err != nil {
		return r, fmt.Errorf("restore private files: %w", err)
	}
	r.Written, r.Deleted, r.Expired = report.Written, report.Deleted, report.Last.Expired
	r.Revision, r.Continuous = report.Revision, report.Raised
	return r, nil
}

// storedIn are the entries of a backup that are of the storage. It closes the reader.
func storedIn(ctx context.Context, file *reader) transfer.Entries {
	return func(yield func(transfer.Entry, error) bool) {
		defer file.close()
		for e, err := range file.entries(ctx) {
			if err == nil && e.Key[0] == attached {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// examine reads a backup, tries whether its values can be decrypted, and returns its private files if they
// are asked for.
func examine(ctx context.Context, from io.ReadSeeker, o Options) (info Info, files map[string][]byte, err error) {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return info, nil, err
	}
	read, stop, err := decrypter(ctx, o.EncryptionConfigFile)
	if err != nil {
		return info, nil, err
	}
	defer stop()
	var n int64
	var sealed []byte
	info, err = check(ctx, from, isWhole, func(info *Info, e transfer.Entry) error {
		if e.Key[0] == attached {
			sealed = e.Value
			return nil
		}
		if n++; o.Progress != nil {
			o.Progress(0, n)
		}
		if isLent(e.Key) {
			return nil // its API server can read it, however it is encrypted
		}
		return read(info, e)
	})
	if err == nil && o.Private.Dir != "" {
		files, err = o.Private.open(sealed)
	}
	return info, files, err
}

// decrypter returns what tries whether a value can be decrypted.
func decrypter(ctx context.Context, file string) (read func(*Info, transfer.Entry) error, stop func(), err error) {
	if file == "" {
		return func(_ *Info, e transfer.Entry) error {
			if by := encryptedBy(e.Value); by != "" {
				return fmt.Errorf("%s is encrypted with %q: name the encryption configuration that has this key, "+
					"which the servers of the storage need as well", e.Key, by)
			}
			return nil
		}, func() {}, nil
	}
	transformers, stop, err := encryption.Transformers(ctx, file)
	if err != nil {
		return nil, nil, err
	}
	return func(info *Info, e transfer.Entry) error {
		_, place := keys.Space{Prefix: info.Prefix}.Place(string(e.Key))
		if place == "" {
			return nil
		}
		var errs []error
		for _, r := range keys.Resources(place) {
			_, _, err := transformers.TransformerForResource(r).TransformFromStorage(ctx, e.Value, value.DefaultContext(e.Key))
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return fmt.Errorf("%s cannot be decrypted (%q) with %s: %w: name a configuration that has its key",
			e.Key, encryptedBy(e.Value), file, errors.Join(errs...))
	}, stop, nil
}
