package hostile

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	asYAML     = "application/yaml"
	asProtobuf = runtime.ContentTypeProtobuf
	asCBOR     = runtime.ContentTypeCBOR
	dry        = "?dryRun=All"
)

// refused is a create that must answer 400.
func (k kind) refused(contentType, body, message string) row {
	return row{request: request{method: "POST", path: k.collection + dry, contentType: contentType, body: body}, code: 400, status: metav1.StatusReasonBadRequest, message: message}
}

// created is a dry create that must be accepted.
func (k kind) created(query, body string) row {
	return row{request: request{method: "POST", path: k.collection + dry + query, body: body}, code: 201}
}

// bodyRows are bodies that cannot be read, or say another thing than the path.
func bodyRows(k kind) map[string]row {
	good := k.object(k.fresh, "", "")
	unsupported := func(contentType, body string) row {
		return row{request: request{method: "POST", path: k.collection, contentType: contentType, body: body}, code: 415, status: metav1.StatusReasonUnsupportedMediaType}
	}
	rows := map[string]row{
		"json that ends early":       k.refused("", good[:len(good)-1], ""),
		"json that goes on":          k.refused("", good+"x", ""),
		"two json documents":         k.refused("", good+good, ""),
		"no body":                    k.refused("", "", ""),
		"a space":                    k.refused("", " ", ""),
		"an array":                   k.refused("", "["+good+"]", ""),
		"a string":                   k.refused("", `"x"`, ""),
		"a number":                   k.refused("", `1`, ""),
		"metadata is a string":       k.refused("", `{"apiVersion":"`+k.apiVersion+`","kind":"`+k.name+`","metadata":"x"}`, ""),
		"metadata is an array":       k.refused("", `{"apiVersion":"`+k.apiVersion+`","kind":"`+k.name+`","metadata":[]}`, ""),
		"labels are numbers":         k.refused("", k.object(k.fresh, `,"labels":{"a":1}`, ""), ""),
		"finalizers are a map":       k.refused("", k.object(k.fresh, `,"finalizers":{"a":1}`, ""), ""),
		"kind is a number":           k.refused("", `{"apiVersion":"`+k.apiVersion+`","kind":1,"metadata":{"name":"x"}}`, ""),
		"apiVersion is an object":    k.refused("", `{"apiVersion":{},"kind":"`+k.name+`","metadata":{"name":"x"}}`, ""),
		"apiVersion with slashes":    k.refused("", strings.Replace(good, k.apiVersion, "a/b/c", 1), ""),
		"another kind":               k.refused("", strings.Replace(good, quoted(k.name), `"Status"`, 1), ""),
		"unknown kind":               k.refused("", strings.Replace(good, quoted(k.name), `"Nothing"`, 1), ""),
		"another version":            k.refused("", strings.Replace(good, quoted(k.apiVersion), `"v2beta7"`, 1), ""),
		"another group":              k.refused("", strings.Replace(good, quoted(k.apiVersion), `"nobody.example.com/v1"`, 1), ""),
		"a list of the kind":         k.refused("", `{"apiVersion":"`+k.apiVersion+`","kind":"`+k.name+`List","metadata":{},"items":[`+good+`]}`, ""),
		"delete options":             k.refused("", `{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}`, ""),
		"deep arrays":                bounded(k.refused("", k.object(k.fresh, "", `,"x":`+nested("[", "", "]", 100_000)), "")),
		"deep objects":               bounded(k.refused("", k.object(k.fresh, "", `,"x":`+nested(`{"a":`, "1", "}", 100_000)), "")),
		"deep and unfinished":        bounded(k.refused("", strings.Repeat("[", 1_000_000), "")),
		"a generation out of range":  k.refused("", k.object(k.fresh, `,"generation":99999999999999999999`, ""), ""),
		"a time that is none":        k.refused("", k.object(k.fresh, `,"creationTimestamp":"yesterday"`, ""), ""),
		"yaml that ends early":       k.refused(asYAML, "a: [", ""),
		"yaml with a tab":            k.refused(asYAML, "kind:\n\t- x", ""),
		"yaml that is binary":        k.refused(asYAML, "\x00\x01\xff\xfe", ""),
		"yaml with invalid utf-8":    k.refused(asYAML, strings.Replace(good, k.fresh, "a\xff", 1), ""),
		"yaml with many aliases":     bounded(k.refused(asYAML, aliases(k), "")),
		"yaml that is deep":          bounded(k.refused(asYAML, nested("[", "", "]", 50_000), "")),
		"json with a byte order":     k.refused("", "\xef\xbb\xbf"+good, ""),
		"json in utf-16":             k.refused("", "\xff\xfe{\x00}\x00", ""),
		"text":                       unsupported("text/plain", good),
		"a form":                     unsupported("application/x-www-form-urlencoded", "a=b"),
		"a content type of slashes":  unsupported("///", good),
		"a content type of commas":   unsupported("application/json,application/yaml", good),
		"a patch content type":       unsupported("application/merge-patch+json", good),
		"cbor":                       unsupported(asCBOR, "\xd9\xd9\xf7\xa1\x64kind\x61x"),
		"cbor that ends early":       unsupported(asCBOR, "\xd9\xd9\xf7\xbf"),
		"an answer nobody can write": {request: request{method: "GET", path: k.one(), accept: "image/png"}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"an accept header of dirt":   {request: request{method: "GET", path: k.one(), accept: ";;;q=\"\x80"}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"a table of an old version":  {request: request{method: "GET", path: k.one(), accept: "application/json;as=Table;g=meta.k8s.io;v=v7"}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"a form nobody knows":        {request: request{method: "GET", path: k.one(), accept: "application/json;as=Chair;g=meta.k8s.io;v=v1"}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"no content type":            {request: request{method: "POST", path: k.collection + dry, contentType: noContentType, body: good}, code: 201, reason: "json is what a client means that does not say"},
		"content type with charset":  {request: request{method: "POST", path: k.collection + dry, contentType: "application/json; charset=latin1", body: good}, code: 201},
		"too large": {
			request: request{method: "POST", path: k.collection, body: k.object(k.fresh, `,"annotations":{"a":"`+strings.Repeat("x", 3<<20)+`"}`, "")},
			code:    413, status: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728",
		},
		"too large put": {
			request: request{method: "PUT", path: k.one(), body: k.object(k.kept, `,"annotations":{"a":"`+strings.Repeat("x", 3<<20)+`"}`, "")},
			code:    413, status: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728",
		},
		"too large to delete": {
			request: request{method: "DELETE", path: k.one(), body: strings.Repeat(" ", 3<<20+1)},
			code:    413, status: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728",
		},
		"annotations of 300 KiB": {
			request: request{method: "POST", path: k.collection, body: k.object(k.fresh, `,"annotations":{"a":"`+strings.Repeat("x", 300<<10)+`"}`, "")},
			code:    422, status: metav1.StatusReasonInvalid, message: "metadata.annotations: Too long",
		},
	}
	if k.custom {
		for _, name := range []string{"another kind", "unknown kind", "a list of the kind"} {
			r := rows[name]
			r.code, r.status, r.message = 422, metav1.StatusReasonInvalid, "must be Gourd"
			rows[name] = r
		}
	}
	for name, r := range fieldRows(k) {
		rows[name] = r
	}
	for name, r := range protobufRows(k) {
		rows[name] = r
	}
	return rows
}

// aliases is a document that is small until its aliases are followed.
func aliases(k kind) string {
	var b strings.Builder
	b.WriteString("apiVersion: " + k.apiVersion + "\nkind: " + k.name + "\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		last := string(rune('0' + i - 1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" +
			strings.TrimSuffix(strings.Repeat("*a"+last+",", 10), ",") + "]\n")
	}
	return b.String()
}

// fieldRows are fields that nobody knows and fields that are there twice.
func fieldRows(k kind) map[string]row {
	unknown := k.object(k.fresh, "", `,"nobody":1`)
	inMetadata := k.object(k.fresh, `,"nobody":1`, "")
	twice := k.object(k.fresh, `,"labels":{},"labels":{}`, "")
	strict := func(body, message string) row {
		return row{request: request{method: "POST", path: k.collection + dry + "&fieldValidation=Strict", body: body}, code: 400, status: metav1.StatusReasonBadRequest, message: message}
	}
	warned := func(query, body, warning string) row {
		r := k.created(query, body)
		r.warning = warning
		return r
	}
	return map[string]row{
		"unknown field, strict":         strict(unknown, `unknown field "nobody"`),
		"unknown field, warn":           warned("&fieldValidation=Warn", unknown, `unknown field \"nobody\"`),
		"unknown field, ignored":        k.created("&fieldValidation=Ignore", unknown),
		"unknown field, by default":     warned("", unknown, `unknown field \"nobody\"`),
		"unknown in metadata, strict":   strict(inMetadata, `unknown field "metadata.nobody"`),
		"unknown in metadata, ignored":  k.created("&fieldValidation=Ignore", inMetadata),
		"field twice, strict":           strict(twice, `duplicate field "metadata.labels"`),
		"field twice, warn":             warned("&fieldValidation=Warn", twice, `duplicate field \"metadata.labels\"`),
		"field twice, ignored":          k.created("&fieldValidation=Ignore", twice),
		"unknown field, put, strict":    {request: request{method: "PUT", path: k.one() + dry + "&fieldValidation=Strict", body: k.object(k.kept, "", `,"nobody":1`)}, code: 400, status: metav1.StatusReasonBadRequest, message: `unknown field "nobody"`},
		"unknown field, merge, strict":  {request: request{method: "PATCH", path: k.one() + dry + "&fieldValidation=Strict", contentType: mergePatch, body: `{"nobody":1}`}, code: 422, status: metav1.StatusReasonInvalid, message: `unknown field "nobody"`},
		"unknown field, json, strict":   {request: request{method: "PATCH", path: k.one() + dry + "&fieldValidation=Strict", contentType: jsonPatch, body: `[{"op":"add","path":"/nobody","value":1}]`}, code: 422, status: metav1.StatusReasonInvalid, message: `unknown field "nobody"`},
		"a word for validation":         {request: request{method: "POST", path: k.collection + dry + "&fieldValidation=Maybe", body: unknown}, code: 422, status: metav1.StatusReasonInvalid, message: "fieldValidation"},
		"a word for validation, lower":  {request: request{method: "POST", path: k.collection + dry + "&fieldValidation=strict", body: unknown}, code: 422, status: metav1.StatusReasonInvalid, message: "fieldValidation"},
		"a word for validation, update": {request: request{method: "PUT", path: k.one() + dry + "&fieldValidation=Maybe", body: k.object(k.kept, "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "fieldValidation"},
	}
}

// protobufRows are bodies in protobuf, where the resource takes that at all.
func protobufRows(k kind) map[string]row {
	// runtime.Unknown{TypeMeta{apiVersion, kind}, raw}
	typeMeta := delimited(1, k.apiVersion) + delimited(2, k.name)
	envelope := func(raw string) string { return "k8s\x00" + delimited(1, typeMeta) + delimited(2, raw) }
	bodies := map[string]string{
		"protobuf without its magic":       delimited(1, typeMeta),
		"protobuf of nothing":              "k8s\x00",
		"protobuf of a byte":               "k8s\x00\xff",
		"protobuf that ends early":         envelope(delimited(1, delimited(1, k.fresh)))[:20],
		"protobuf with a long length":      "k8s\x00" + delimited(1, typeMeta) + "\x12\xff\xff\xff\xff\x07x",
		"protobuf with a negative length":  "k8s\x00" + delimited(1, typeMeta) + "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"protobuf metadata that is no map": envelope("\x0a\x05\xff\xff\xff\xff\xff"),
		"protobuf wire type 7":             envelope("\x0f\x01"),
		"protobuf of a group that is open": envelope("\x0b\x0b\x0b\x0b"),
		"protobuf of another kind":         "k8s\x00" + delimited(1, delimited(1, "v1")+delimited(2, "Pod")) + delimited(2, ""),
	}
	rows := map[string]row{}
	for name, body := range bodies {
		r := k.refused(asProtobuf, body, "")
		if !k.protobuf {
			r.code, r.status, r.reason = 415, metav1.StatusReasonUnsupportedMediaType, "the type has no protobuf form"
		}
		rows[name] = r
	}
	if !k.protobuf {
		rows["protobuf answer"] = row{request: request{method: "GET", path: k.one(), accept: asProtobuf}, code: 406, status: noStatus, reason: "the Status is in protobuf, which was asked for"}
	}
	return rows
}

// delimited is a length-delimited protobuf field of fewer than 128 bytes.
func delimited(number byte, value string) string {
	return string([]byte{number<<3 | 2, byte(len(value))}) + value
}
