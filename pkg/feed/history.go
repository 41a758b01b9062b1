package feed

// maxSteps bounds how exactly a feed knows the revisions of its history.
const maxSteps = 512

// history counts the bytes that were replaced or deleted, by revision.
type history struct {
	bytes int64
	steps []step // the oldest first
}

// step is how many bytes were replaced up to and including a revision.
type step struct{ revision, bytes int64 }

// add notes that the write at a revision replaced so many bytes.
func (h *history) add(revision, bytes int64) {
	h.bytes += bytes
	if len(h.steps) == maxSteps {
		// Keep every second step: the revisions are then known half as exactly.
		for i := range maxSteps / 2 {
			h.steps[i] = h.steps[2*i+1]
		}
		h.steps = h.steps[:maxSteps/2]
	}
	h.steps = append(h.steps, step{revision, h.bytes})
}

// after is how many bytes were replaced after a revision: a storage that was
// compacted there still has them.
func (h *history) after(revision int64) int64 {
	gone := 0
	for gone < len(h.steps) && h.steps[gone].revision <= revision {
		gone++
	}
	if gone > 1 {
		h.steps = append(h.steps[:0], h.steps[gone-1:]...)
		gone = 1
	}
	if gone == 0 {
		return h.bytes
	}
	return h.bytes - h.steps[0].bytes
}

// replaced is how many replaced or deleted bytes of the plane the storage keeps,
// since the feed began.
func (f *Feed) replaced(compacted int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.history.after(compacted)
}
