package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxPatch is how much of a body is read to look at it, in bytes. It is the
// API's own limit; a longer body is passed on, to be refused there.
const maxPatch = 3 << 20

// checkJSONPatch refuses operations on the whole document that have no value: the
// library that applies patches dereferences nil for them. The body can be read
// again afterwards.
func checkJSONPatch(r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPatch+1))
	r.Body = &replayed{Reader: io.MultiReader(bytes.NewReader(body), r.Body), Closer: r.Body}
	if err != nil {
		return nil //nolint:nilerr // the handler meets the same error and knows what to say
	}
	// A substring is cheaper than a second decoding: few patches mention it.
	if !bytes.Contains(body, []byte(`""`)) {
		return nil
	}
	var operations []map[string]json.RawMessage // as the library decodes them: names in their case
	if json.Unmarshal(body, &operations) != nil {
		return nil //nolint:nilerr // refused by the handler
	}
	for _, o := range operations {
		value := string(bytes.TrimSpace(o["value"]))
		if string(o["path"]) == `""` && (value == "" || value == "null") && string(o["op"]) != `"test"` {
			return unprocessable(string(o["op"]))
		}
	}
	return nil
}

func isJSONPatch(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == string(types.JSONPatchType)
}

func unprocessable(op string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "the server rejected our request due to an error in our request: operation " + op + ` of path "" has no value`,
	}}
}

// replayed is a body that can be read again.
type replayed struct {
	io.Reader
	io.Closer
}
