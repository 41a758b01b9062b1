package auditing

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// chainNote is the annotation that links a line to the one before: the line's
	// number, and the SHA-256 of the line before without its end.
	chainNote = "audit.sailplane.dev/chain"
	// mendedNote is the annotation of the line after one that was not written to its
	// end: the bytes and the SHA-256 of what is between it and the line before.
	mendedNote = "audit.sailplane.dev/mended"

	numberLength = 16
	linkLength   = numberLength + 1 + 2*sha256.Size
	// tail is how much of a file is read to find its last line.
	tail = 1 << 20
)

// link is a place in the chain: a line's number and its hash.
type link struct {
	number uint64
	hash   [sha256.Size]byte
}

// room adds the annotation of the chain, still empty, to the end of a line of JSON,
// which has annotations or not.
func room(line []byte, annotated bool) []byte {
	line = bytes.TrimRight(line, "\n")
	if annotated {
		line = append(line[:len(line)-2], `,"`...)
	} else {
		line = append(line[:len(line)-1], `,"annotations":{"`...)
	}
	line = append(append(line, chainNote...), `":"`...)
	line = append(line, strings.Repeat("0", linkLength)...)
	return append(line, "\"}}\n"...)
}

// seal fills in the room at the end of a line.
func (l link) seal(line []byte) {
	end := len(line) - len("\"}}\n")
	at := line[end-linkLength : end]
	number := strconv.AppendUint(make([]byte, 0, 20), l.number+1, 10)
	copy(at[numberLength-len(number):], number)
	at[numberLength] = ' '
	hex.Encode(at[numberLength+1:], l.hash[:])
}

// next is the place of a line that was written.
func (l link) next(line []byte) link {
	return link{l.number + 1, sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))}
}

// linked is what a line says of its place.
type linked struct {
	number uint64
	before string // the hash of the line before, in hexadecimal
	mended string
	at     time.Time
}

// readLine reads a line of a log: whether it is an event, and whether that has a
// place in the chain.
func readLine(line []byte) (l linked, event, chained bool) {
	var e struct {
		Kind           string            `json:"kind"`
		StageTimestamp metav1.MicroTime  `json:"stageTimestamp"`
		Annotations    map[string]string `json:"annotations"`
	}
	if json.Unmarshal(line, &e) != nil || e.Kind != "Event" {
		return linked{}, false, false
	}
	l = linked{at: e.StageTimestamp.Time, mended: e.Annotations[mendedNote]}
	number, before, ok := strings.Cut(e.Annotations[chainNote], " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || len(before) != 2*sha256.Size {
		return l, true, false
	}
	l.number, l.before = n, before
	return l, true, true
}

// resume finds the place where the chain goes on: after the last event of the newest
// file that has one. What follows that event in the current file was not written to
// its end; it is returned, with its line's end if it has one.
func resume(current string, backups []backup) (place link, torn []byte, err error) {
	paths := []string{current}
	for _, b := range backups {
		paths = append(paths, b.name)
	}
	for i, path := range paths {
		content, err := last(path, tail)
		if err != nil {
			return link{}, nil, err
		}
		place, rest, found := lastEvent(content)
		if i == 0 {
			torn = rest
		}
		if found {
			return place, torn, nil
		}
		if len(content) == tail {
			return link{}, nil, nil // no log of JSON: a new chain begins
		}
	}
	return link{}, torn, nil
}

// lastEvent finds the last whole event in the end of a file, and what follows it. An
// event without a place begins a new chain.
func lastEvent(content []byte) (place link, rest []byte, found bool) {
	end := len(content)
	for end > 0 {
		line := bytes.TrimSuffix(content[:end], []byte("\n"))
		begin := bytes.LastIndexByte(line, '\n') + 1
		if l, event, _ := readLine(line[begin:]); event {
			rest = content[end:]
			if end == len(content) && len(line) == end {
				rest = nil // whole, but for its end: begin adds that
			}
			return link{l.number, sha256.Sum256(line[begin:])}, rest, true
		}
		end = begin
	}
	return link{}, content, false
}

// last is the end of a file, of so many bytes at most.
func last(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	content := make([]byte, min(info.Size(), most))
	if _, err := f.ReadAt(content, info.Size()-int64(len(content))); err != nil && err != io.EOF {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return content, nil
}

// mended is the event that says what is before it and is none.
func mended(torn []byte, now time.Time) *auditinternal.Event {
	return own(now, "mend", map[string]string{mendedNote: mark(torn)})
}

// mark is what a mended line says of the bytes before it.
func mark(torn []byte) string {
	torn = bytes.TrimSuffix(torn, []byte("\n"))
	return fmt.Sprintf("%d %x", len(torn), sha256.Sum256(torn))
}

// own is an event of the log itself.
func own(now time.Time, verb string, annotations map[string]string) *auditinternal.Event {
	at := metav1.NewMicroTime(now)
	e := &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: types.UID(uuid.NewString()), Stage: auditinternal.StageResponseComplete,
		Verb: verb, RequestReceivedTimestamp: at, StageTimestamp: at, Annotations: annotations,
	}
	e.User.Username = user.APIServerUser
	return e
}
