package upstream

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Handshake refuses a request for a WebSocket on which a stream cannot be read. Upstream's
// reader waits forever for a WebSocket whose handshake fails.
// https://github.com/kubernetes/streaming/blob/v0.37.2/pkg/httpstream/wsstream/stream.go#L116
func Handshake(r *http.Request) error {
	if !wsstream.IsWebSocketRequest(r) {
		return nil
	}
	if version := r.Header.Get("Sec-Websocket-Version"); version != "13" || r.Header.Get("Sec-Websocket-Key") == "" {
		return apierrors.NewBadRequest("the handshake of the WebSocket is incomplete: want version 13 and a key")
	}
	known := wsstream.NewDefaultReaderProtocols()
	given := strings.TrimSpace(r.Header.Get("Sec-Websocket-Protocol"))
	for protocol := range strings.SplitSeq(given, ",") {
		if _, ok := known[strings.TrimSpace(protocol)]; ok {
			return nil
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool { return name == "" })
	return apierrors.NewBadRequest("no protocol of the WebSocket is known: want one of " + strings.Join(names, ", ") + ", or none")
}
