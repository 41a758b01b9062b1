package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

// lentPrefix starts every key in a backup of an EtcdStorage: where that lies, and what it is called, is
// not in its keys.
const lentPrefix = "k"

// lastRevision is the largest one that an EtcdStorage may come with: so many are left to go on with.
const lastRevision = 1 << 61

// ErrOvertaken is why [Lent.Fill] ends when somebody else begins to.
var ErrOvertaken = transfer.ErrOvertaken

// TooMuchError is why [ReadLent] refuses a backup that has more than that.
type TooMuchError struct {
	// What is how much the backup has at least, of what is limited.
	What string
	Most int64
}

// Error implements error.
func (e *TooMuchError) Error() string {
	return fmt.Sprintf("it has %s, and %d are allowed: raise spec.limits of the EtcdStorage", e.What, e.Most)
}

// Lent is the part of a storage that an EtcdStorage has.
type Lent struct {
	// Name is that of the EtcdStorage, and Engine what the storage is.
	Name, Engine string
	// Client is one of the storage.
	Client *clientv3.Client
	// Root starts every key in the storage, and none that is known to who borrows it.
	Root string
	// Offset is added to the revisions of the storage.
	Offset int64
}

// Write writes a backup of what an EtcdStorage has at a revision of the storage. Writes go on meanwhile.
func (l Lent) Write(ctx context.Context, revision int64, to io.Writer) (Info, error) {
	w, err := newWriter(&paced{ctx: ctx, to: to, begun: time.Now()}, Info{
		Format: lentFormat, Program: controlplane.Version().GitVersion, Engine: l.Engine, Prefix: lentPrefix, EtcdStorage: l.Name,
		Revision: revision + l.Offset, Taken: time.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		return Info{}, fmt.Errorf("backup: %w", err)
	}
	info, err := w.all(transfer.Range(ctx, l.Client, l.Root, revision), func(e *transfer.Entry) bool {
		e.Key = append([]byte(lentPrefix), e.Key[len(l.Root):]...)
		return true
	})
	if err != nil {
		return info, fmt.Errorf("backup: %w", err)
	}
	return info, nil
}

// LentLimits bound what an EtcdStorage may get from a backup.
type LentLimits struct {
	Keys, Bytes, ValueBytes int64
}

// ReadLent reads a backup of an EtcdStorage to its end. It refuses one of a whole storage, and one that has
// more than it may have ([TooMuchError]). Above is the revision above which those of its clients are to go on: they
// may have seen more since it was taken.
func ReadLent(ctx context.Context, from io.Reader, most LentLimits) (info Info, above int64, err error) {
	var n, size int64
	var last []byte
	info, err = check(ctx, from, func(i *Info) error {
		switch {
		case i.EtcdStorage == "" || i.Prefix != lentPrefix:
			return errors.New("it has no EtcdStorage alone, but a whole storage, for a server that is stopped: sailplane restore FILE " +
				"--to STORAGE")
		case i.Revision <= 0 || i.Revision > lastRevision:
			return fmt.Errorf("it is damaged: its revision is %d", i.Revision)
		}
		return nil
	}, func(_ *Info, e transfer.Entry) error {
		if !bytes.HasPrefix(e.Key, []byte(lentPrefix)) || bytes.Compare(last, e.Key) >= 0 {
			return fmt.Errorf("it is damaged: key %q comes after %q", e.Key, last)
		}
		last = e.Key
		n++
		size += int64(len(e.Key) - len(lentPrefix) + len(e.Value))
		switch {
		case int64(len(e.Value)) > most.ValueBytes:
			return &TooMuchError{fmt.Sprintf("a value of %d bytes", len(e.Value)), most.ValueBytes}
		case n > most.Keys:
			return &TooMuchError{fmt.Sprintf("%d keys or more", n), most.Keys}
		case size > most.Bytes:
			return &TooMuchError{fmt.Sprintf("%d bytes or more", size), most.Bytes}
		}
		return nil
	})
	return info, Seen(info.Revision, info.Taken), err
}

// Seen is the newest revision that clients may have seen by now, when a backup was taken of one some time ago.
func Seen(revision int64, taken time.Time) int64 {
	age := max(0, time.Since(taken))
	return revision + int64(age.Seconds()*writesPerSecond)
}

// Filled is what an EtcdStorage has got from a backup.
type Filled struct {
	// Keys and Bytes are what it has, and Expired the keys of the backup that have expired since.
	Keys, Bytes, Expired int64
}

// Fill makes an EtcdStorage have what is in a backup that [ReadLent] took, and nothing else. Everything is
// written anew, while a condition holds: if it does not, the error is [ErrOvertaken]. Nobody else may write. In the end
// it reads both, and finds no difference.
func (l Lent) Fill(ctx context.Context, from io.ReadSeeker, while clientv3.Cmp, progress func(keys int64)) (Filled, error) {
	part := transfer.Part{Client: l.Client, Prefix: l.Root, While: while, Progress: progress}
	t, err := part.Fill(ctx, func(ctx context.Context) (transfer.Entries, error) {
		if _, err := from.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		file, err := newReader(from)
		if err != nil {
			return nil, err
		}
		return func(yield func(transfer.Entry, error) bool) {
			for e, err := range storedIn(ctx, file) {
				if err == nil {
					e.Key = append([]byte(l.Root), e.Key[len(lentPrefix):]...)
				}
				if !yield(e, err) {
					return
				}
			}
		}, nil
	})
	keys := t.Keys + t.Expiring
	return Filled{Keys: keys, Bytes: t.Bytes + t.ExpiringBytes - keys*int64(len(l.Root)), Expired: t.Expired}, err
}
