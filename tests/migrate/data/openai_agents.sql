-- SQLiteSession of openai-agents 0.24.0
BEGIN TRANSACTION;
CREATE TABLE agent_messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                session_id TEXT NOT NULL,
                message_data TEXT NOT NULL,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id)
                    ON DELETE CASCADE
            );
INSERT INTO "agent_messages" VALUES(1,'ada','{"content": "How many people live in Oslo, Bergen and Atlantis?", "role": "user"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(2,'ada','{"id": "rs_1", "summary": [{"text": "Three cities.", "type": "summary_text"}], "type": "reasoning", "encrypted_content": "gAAA"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(3,'ada','{"id": "msg_1", "content": [{"annotations": [], "text": "Let me look.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(4,'ada','{"arguments": "{\"city\": \"Oslo\"}", "call_id": "c1", "name": "population", "type": "function_call", "id": "fc_c1", "status": "completed"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(5,'ada','{"arguments": "{\"city\": \"Bergen\"}", "call_id": "c2", "name": "population", "type": "function_call", "id": "fc_c2", "status": "completed"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(6,'ada','{"arguments": "{\"city\": \"Atlantis\"}", "call_id": "c3", "name": "population", "type": "function_call", "id": "fc_c3", "status": "completed"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(7,'ada','{"call_id": "c1", "output": "717710", "type": "function_call_output"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(8,'ada','{"call_id": "c2", "output": "291940", "type": "function_call_output"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(9,'ada','{"call_id": "c3", "output": "An error occurred while running the tool. Please try again.", "type": "function_call_output"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(10,'ada','{"id": "msg_2", "content": [{"annotations": [], "text": "Oslo has 717,710 people.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-28 16:25:53');
INSERT INTO "agent_messages" VALUES(11,'ada','{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=", "detail": "auto"}, {"type": "input_file", "file_id": "file_1"}]}','2026-11-28 16:25:54');
INSERT INTO "agent_messages" VALUES(12,'ada','{"id": "msg_3", "content": [{"annotations": [], "text": "A single green pixel.", "type": "output_text", "logprobs": []}], "role": "assistant", "status": "completed", "type": "message"}','2026-11-28 16:25:54');
INSERT INTO "agent_messages" VALUES(13,'bob','{"role": "system", "content": "Bob is a gardener."}','2026-11-28 16:25:54');
INSERT INTO "agent_messages" VALUES(14,'bob','{"role": "user", "content": "Hello."}','2026-11-28 16:25:54');
INSERT INTO "agent_messages" VALUES(15,'bob','{"role": "assistant", "content": "Hello, Bob."}','2026-11-28 16:25:54');
CREATE TABLE agent_sessions (
                session_id TEXT PRIMARY KEY,
                created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
                updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
            );
INSERT INTO "agent_sessions" VALUES('ada','2026-11-28 16:25:53','2026-11-28 16:25:54');
INSERT INTO "agent_sessions" VALUES('bob','2026-11-28 16:25:54','2026-11-28 16:25:54');
CREATE INDEX idx_agent_messages_session_id
            ON agent_messages (session_id, id)
        ;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('agent_messages',15);
COMMIT;
