package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sailplane-dev/sailplane/pkg/internal/transfer"
)

const (
	// window is how far back compression looks. A reader needs so much memory.
	window = 1 << 20
	// maxKey, maxValue and maxInfo bound what a file makes its reader keep.
	maxKey, maxValue, maxInfo = 64 << 10, 64 << 20, 4 << 20
)

// writer writes a backup.
type writer struct {
	info Info
	zip  *zstd.Encoder
	to   io.Writer // of zip and sum
	sum  hash.Hash
	keys hash.Hash
}

func newWriter(to io.Writer, info Info) (*writer, error) {
	zip, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return nil, err
	}
	w := &writer{info: info, zip: zip, sum: sha256.New(), keys: sha256.New()}
	w.to = io.MultiWriter(zip, w.sum)
	if err := w.line(w.to); err != nil {
		return nil, err
	}
	w.info.Resources, w.info.Encrypted = map[string]Count{}, map[string]int64{}
	return w, nil
}

func (w *writer) line(to io.Writer) error {
	b, err := json.Marshal(w.info)
	if err != nil {
		return err
	}
	_, err = to.Write(append(b, '\n'))
	return err
}

// add writes an entry.
func (w *writer) add(e transfer.Entry) error {
	head := binary.AppendUvarint(nil, uint64(len(e.Key)))
	head = append(head, e.Key...)
	var expires uint64
	if !e.Expires.IsZero() {
		expires = uint64(e.Expires.Unix())
	}
	sum(w.keys, e)
	head = binary.AppendUvarint(head, expires)
	head = binary.AppendUvarint(head, uint64(len(e.Value)))
	if _, err := w.to.Write(head); err != nil {
		return err
	}
	w.info.count(e.Key, e.Value, expires > 0)
	_, err := w.to.Write(e.Value)
	return err
}

// sum adds an entry to the sum of what does not expire.
func sum(to hash.Hash, e transfer.Entry) {
	if e.Expires.IsZero() && e.Key[0] != attached {
		transfer.Sum(to, e.Key, e.Value)
	}
}

// end completes the backup.
func (w *writer) end() (Info, error) {
	if _, err := w.to.Write([]byte{0}); err != nil {
		return w.info, err
	}
	w.info.SHA256, w.info.Checksum = hex.EncodeToString(w.keys.Sum(nil)), hex.EncodeToString(w.sum.Sum(nil))
	if err := w.line(w.zip); err != nil {
		return w.info, err
	}
	return w.info, w.zip.Close()
}

// reader reads a backup.
type reader struct {
	from   *bufio.Reader
	unzip  *zstd.Decoder
	sum    hash.Hash
	counts Info // of what was read
	keys   hash.Hash
}

// errIncomplete is why a backup cannot be used.
var errIncomplete = errors.New("it is not complete: it was cut off while it was written or sent; use another one")

func newReader(from io.Reader) (*reader, error) {
	unzip, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8*window))
	if err != nil {
		return nil, err
	}
	r := &reader{from: bufio.NewReaderSize(unzip, 64<<10), unzip: unzip, sum: sha256.New(), keys: sha256.New()}
	line, err := r.line()
	if err == nil {
		r.sum.Write(line)
		err = json.Unmarshal(line, &r.counts)
	}
	switch {
	case errors.Is(err, errIncomplete), errors.Is(err, zstd.ErrCRCMismatch):
	case err != nil || r.counts.Format == 0:
		err = errors.New("it is no backup of Sailplane, or is damaged: it does not begin with a description, compressed with zstd")
	case r.counts.Format > lentFormat:
		err = fmt.Errorf("it has format %d, and this version reads formats up to %d: use the version that wrote it (%s), or a newer one",
			r.counts.Format, lentFormat, r.counts.Program)
	}
	if err != nil {
		unzip.Close()
		return nil, err
	}
	r.counts.Resources, r.counts.Encrypted = map[string]Count{}, map[string]int64{}
	return r, nil
}

// line reads a line of JSON.
func (r *reader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, cut(err)
		case len(line) > maxInfo:
			return nil, errors.New("its description is too long")
		}
	}
}

// cut says of an end that comes too early what that means.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errIncomplete
	}
	return fmt.Errorf("it is damaged: %w", err)
}

// number reads a number, which is at most so large.
func (r *reader) number(most uint64) (uint64, error) {
	n, err := binary.ReadUvarint(r.from)
	if err != nil {
		return 0, cut(err)
	}
	if n > most {
		return 0, fmt.Errorf("it is damaged: a length of %d, want at most %d", n, most)
	}
	var b [binary.MaxVarintLen64]byte
	r.sum.Write(b[:binary.PutUvarint(b[:], n)])
	return n, nil
}

func (r *reader) bytes(n uint64) ([]byte, error) {
	// Not all at once: a damaged file may claim what it does not have.
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r.from, int64(n)); err != nil {
		return nil, cut(err)
	}
	r.sum.Write(b.Bytes())
	return b.Bytes(), nil
}

// next returns the next entry, or io.EOF after the last one, when the counts and sums are those that the
// backup names.
func (r *reader) next() (e transfer.Entry, err error) {
	n, err := r.number(maxKey)
	if err != nil {
		return e, err
	}
	if n == 0 {
		return e, r.end()
	}
	if e.Key, err = r.bytes(n); err != nil {
		return e, err
	}
	expires, err := r.number(1 << 62)
	if err != nil {
		return e, err
	}
	if n, err = r.number(maxValue); err != nil {
		return e, err
	}
	if e.Value, err = r.bytes(n); err != nil {
		return e, err
	}
	if expires > 0 {
		e.Expires = time.Unix(int64(expires), 0)
	}
	sum(r.keys, e)
	r.counts.count(e.Key, e.Value, expires > 0)
	return e, nil
}

// end compares what was read with what the backup says.
func (r *reader) end() error {
	line, err := r.line()
	if err != nil {
		return err
	}
	var said Info
	if err := json.Unmarshal(line, &said); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	sum, keys := hex.EncodeToString(r.sum.Sum(nil)), hex.EncodeToString(r.keys.Sum(nil))
	if said.Checksum != sum || said.SHA256 != keys || said.Keys != r.counts.Keys || said.Expiring != r.counts.Expiring {
		return fmt.Errorf("it is damaged: its checksum is %s, and %s is written in it: use another one", sum, said.Checksum)
	}
	// What is beyond belongs to no backup, and the checksum of the compression comes last.
	if n, err := io.Copy(io.Discard, r.from); err != nil || n > 0 {
		return fmt.Errorf("it is damaged: %w", errors.Join(err, fmt.Errorf("%d bytes come after its end", n)))
	}
	r.counts = said
	return io.EOF
}

func (r *reader) close() { r.unzip.Close() }

// entries are those that are left.
func (r *reader) entries(ctx context.Context) transfer.Entries {
	return func(yield func(transfer.Entry, error) bool) {
		for {
			e, err := r.next()
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if errors.Is(err, io.EOF) || !yield(e, err) || err != nil {
				return
			}
		}
	}
}
