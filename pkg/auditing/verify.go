package auditing

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Verified is what [Verify] found in files whose chain is whole.
type Verified struct {
	// Events is how many the chain holds, the first and the last with these numbers and
	// times.
	Events      int
	First, Last uint64
	From, To    time.Time
	// Unchained is how many events are before the chain begins, which it does not hold,
	// but for the last of them.
	Unchained int
	// Mended is how often the end of a line is missing, because the server crashed.
	Mended int
	// Head is the SHA-256 of the last line, in hexadecimal. Kept elsewhere, it shows
	// later that nothing up to that line was removed or changed.
	Head string
}

// ErrBroken is what errors of [Verify] are that say which line is wrong.
var ErrBroken = errors.New("the chain is broken")

// Verify reads the files of a log with Chain, the oldest first, and returns what they
// hold, or an error that is [ErrBroken] and names the file and line. It cannot see what
// is missing at the end, nor before the first line: log files are removed by age and
// number. The hashes have no key: whoever may write the files can write a new chain from
// some line on. Both are seen by heads that were kept elsewhere, each the Head of an
// earlier call: one that no line of the files has is an error.
func Verify(files []string, heads ...string) (*Verified, error) {
	v := &verifier{missing: map[string]bool{}}
	for _, h := range heads {
		v.missing[strings.ToLower(h)] = true
	}
	for _, path := range files {
		if err := v.file(path); err != nil {
			return nil, err
		}
	}
	if len(v.torn) > 0 {
		return nil, fmt.Errorf("%w: %s is no event: a crash leaves one at the end, which the next start of the server mends",
			ErrBroken, v.tornAt)
	}
	if v.found.Events == 0 {
		return nil, fmt.Errorf("%w: no line has a place in a chain: was the log written with Chain?", ErrBroken)
	}
	for head := range v.missing {
		return nil, fmt.Errorf("%w: no line has the hash %s: the log was cut or written anew, or a file is missing", ErrBroken, head)
	}
	v.found.Last, v.found.Head = v.place.number, fmt.Sprintf("%x", v.place.hash)
	return &v.found, nil
}

// verifier goes through lines.
type verifier struct {
	found   Verified
	place   link
	missing map[string]bool // heads that were not seen
	torn    []byte          // lines that are no events
	tornAt  string
	at      string // the line
}

func (v *verifier) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrBroken, v.at, fmt.Sprintf(format, args...))
}

func (v *verifier) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			v.at = fmt.Sprintf("%s line %d", path, n)
			if err := v.line(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("audit log %q: %w", path, err)
		}
	}
}

func (v *verifier) line(line []byte) error {
	l, event, chained := readLine(line)
	if !event {
		if v.tornAt == "" {
			v.tornAt = v.at
		}
		v.torn = append(append(v.torn, line...), '\n')
		return nil
	}
	if err := v.mended(l); err != nil {
		return err
	}
	hash := sha256.Sum256(line)
	if !chained {
		if v.found.Events > 0 {
			return v.broken("it has no place in the chain: it was added or changed, or the log was written without Chain")
		}
		v.found.Unchained++
		v.place = link{hash: hash}
		return nil
	}
	if err := v.follows(l); err != nil {
		return err
	}
	if v.found.Events == 0 {
		v.found.First, v.found.From = l.number, l.at
	}
	v.found.Events++
	v.found.To = l.at
	v.place = link{l.number, hash}
	delete(v.missing, fmt.Sprintf("%x", hash))
	return nil
}

// mended compares what an event says is before it with what is.
func (v *verifier) mended(l linked) error {
	switch {
	case l.mended == "" && len(v.torn) == 0:
		return nil
	case l.mended == "" || l.mended != mark(v.torn):
		if len(v.torn) > 0 {
			v.at = v.tornAt
		}
		return v.broken("what is here is not what the server wrote: an event %q has to follow %q", mendedNote, mark(v.torn))
	}
	v.found.Mended++
	v.torn, v.tornAt = nil, ""
	return nil
}

// follows tells whether a line follows the one before.
func (v *verifier) follows(l linked) error {
	if v.found.Events == 0 && v.found.Unchained == 0 {
		return nil
	}
	switch before := fmt.Sprintf("%x", v.place.hash); {
	case l.number != v.place.number+1:
		return v.broken("it is number %d, after %d: lines were removed or added, or a file is missing", l.number, v.place.number)
	case l.before != before:
		return v.broken("the line before was changed: it has the hash %s, and was written with %s", before, l.before)
	}
	return nil
}
