package backup

import (
	"bytes"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
)

// Format is that of backups which this version writes. It reads no newer ones.
const Format = 1

// lentFormat is that of backups of one EtcdStorage, which programs that know format 1 only would take for one of
// a whole storage.
const lentFormat = 2

// Info is what a backup says of itself.
type Info struct {
	// Format is that of the backup, and Stored that of what is stored; 0: what an API server stores, of which
	// nothing is known here.
	Format int `json:"format"`
	Stored int `json:"stored"`
	// Program is the version of the program that wrote it, and Engine the storage that it is from.
	Program string `json:"program"`
	Engine  string `json:"engine"`
	// Cluster is the ID of the etcd that it is from; 0: it is from no etcd.
	Cluster uint64 `json:"cluster,omitempty"`
	// Prefix starts every key.
	Prefix string `json:"prefix"`
	// EtcdStorage is the name of the one whose data it has, and nothing else. Empty: it is of a whole storage.
	EtcdStorage string `json:"etcdStorage,omitempty"`
	// Revision is the one at which everything was read, as clients see it, and Taken when that began.
	Revision int64     `json:"revision"`
	Taken    time.Time `json:"taken"`

	// Keys and Bytes are those of all that does not expire, and SHA256 is their sum, in hexadecimal, as
	// that of a copy (storage.Result). Expiring is how many more keys there are.
	Keys     int64  `json:"keys"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256,omitempty"`
	Expiring int64  `json:"expiring,omitempty"`
	// Resources are those of all planes, by name: "deployments.apps". What is no object is in none.
	Resources map[string]Count `json:"resources,omitempty"`
	// Lent is what it has of EtcdStorages, beside the objects of the server: the objects are their keys.
	Lent Count `json:"lent,omitzero"`
	// Encrypted is how many values are encrypted with each key, by the prefix that they begin
	// with: "k8s:enc:aescbc:v1:key1:". Those of EtcdStorages are not among them, but in a backup of one.
	Encrypted map[string]int64 `json:"encrypted,omitempty"`
	// Private tells whether it has private files ([Private]).
	Private bool `json:"private,omitempty"`
	// Checksum is the SHA-256 of all that is before the last line, in hexadecimal.
	Checksum string `json:"checksum,omitempty"`
}

// Count is what a backup has of a resource.
type Count struct {
	Objects int64 `json:"objects"`
	// Bytes are those of keys and values.
	Bytes int64 `json:"bytes"`
}

// count counts a key.
func (i *Info) count(key, value []byte, expires bool) {
	if key[0] == attached {
		i.Private = true
		return
	}
	if expires {
		i.Expiring++
	} else {
		i.Keys++
		i.Bytes += int64(len(key) + len(value))
	}
	if isLent(key) {
		i.Lent.Objects++
		i.Lent.Bytes += int64(len(key) + len(value))
		return
	}
	if by := encryptedBy(value); by != "" {
		i.Encrypted[by]++
	}
	if i.EtcdStorage != "" {
		return // whose resources lie as its API server wants
	}
	_, place := keys.Space{Prefix: i.Prefix}.Place(string(key))
	if place == "" {
		return
	}
	name := keys.Resources(place)[0].String()
	c := i.Resources[name]
	c.Objects++
	c.Bytes += int64(len(key) + len(value))
	i.Resources[name] = c
}

// isLent tells whether a key is of what an EtcdStorage has, and not the server's own.
func isLent(key []byte) bool {
	_, ok := keys.Lent(string(key))
	return ok
}

// encryptedBy is the prefix of an encrypted value, which ends with the name of the key: empty, if the
// value is not encrypted.
func encryptedBy(value []byte) string {
	const longest, parts = 300, 5 // k8s:enc:aescbc:v1:key1:
	if !bytes.HasPrefix(value, []byte("k8s:enc:")) {
		return ""
	}
	head, end := value[:min(len(value), longest)], 0
	for range parts {
		colon := bytes.IndexByte(head[end:], ':')
		if colon < 0 {
			return "k8s:enc:"
		}
		end += colon + 1
	}
	return string(head[:end])
}
